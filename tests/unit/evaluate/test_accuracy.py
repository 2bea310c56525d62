"""Predictions and test accuracy."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from fedsir.evaluate.accuracy import AccuracyReport, predict, score
from fedsir.evaluate.statistics import bootstrap_half_width


class Pixels(nn.Module):
    """Logits are the pixels themselves; remembers what it was given."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, images):
        self.seen.append((len(images), images.dtype, self.training, torch.is_inference_mode_enabled()))
        return images.flatten(1)


def as_float(batch: torch.Tensor) -> torch.Tensor:
    assert batch.dtype == torch.uint8
    return batch.float() / 255


def pixels(rows: list[list[int]]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.uint8)[:, :, None, None]


def test_predict_returns_the_largest_logit():
    predicted = predict(Pixels(), pixels([[9, 1, 2], [0, 7, 7], [1, 2, 255]]), as_float)
    np.testing.assert_array_equal(predicted, [0, 1, 2])
    assert predicted.dtype == np.int64


def test_predict_works_in_batches_in_eval_and_inference_mode():
    model = Pixels().train()
    assert predict(model, torch.zeros(300, 3, 1, 1, dtype=torch.uint8), as_float).shape == (300,)
    assert model.seen == [(size, torch.float32, False, True) for size in (128, 128, 44)]


def test_predictions_do_not_depend_on_the_batch():
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (7, 3, 2, 2), dtype=torch.uint8, generator=generator)
    model = nn.Sequential(nn.BatchNorm2d(3), nn.Flatten())  # batch statistics must play no part
    expected = predict(model, images, as_float)
    alone = [int(predict(model, image[None], as_float)[0]) for image in images]
    assert alone == expected.tolist() and len(set(alone)) > 1


def test_predict_leaves_modes_weights_and_statistics_as_they_were():
    model = nn.Sequential(nn.BatchNorm2d(3), nn.Dropout(), nn.Flatten()).train()
    model[0].eval()  # a frozen layer in a model in training
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    predict(model, pixels([[1, 2, 3]]), as_float)
    assert [module.training for module in model.modules()] == [True, False, True, True]
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_the_mode_comes_back_when_the_model_fails():
    model = Pixels().train()

    def fail(batch):
        raise RuntimeError("broken transform")

    with pytest.raises(RuntimeError, match="broken transform"):
        predict(model, pixels([[1, 2, 3]]), fail)
    assert model.training


def test_a_diverged_model_predicts_nothing_and_is_never_right():
    class Diverged(nn.Module):
        def forward(self, images):
            return torch.tensor([[float("nan"), 0.0], [0.0, 1.0], [float("inf"), 0.0]])

    predicted = predict(Diverged(), pixels([[0, 0], [0, 0], [0, 0]]), as_float)
    np.testing.assert_array_equal(predicted, [-1, 1, 0])
    assert score(predicted, np.array([0, 1, 0]), 2).accuracy == pytest.approx(2 / 3)


def test_predict_refuses_what_is_not_a_stack_of_uint8_images():
    with pytest.raises(ValueError, match="no images"):
        predict(Pixels(), torch.zeros((0, 3, 2, 2), dtype=torch.uint8), as_float)
    with pytest.raises(ValueError, match="uint8"):
        predict(Pixels(), torch.zeros((1, 3, 2, 2)), as_float)
    with pytest.raises(ValueError, match="shape"):
        predict(Pixels(), torch.zeros((3, 2, 2), dtype=torch.uint8), as_float)


def test_score_by_hand():
    # Class 0: 1 of 2 right; class 1: 1 of 1; class 2: no test image; class 3: 0 of 1.
    report = score(np.array([0, 2, 1, 1]), np.array([0, 0, 1, 3]), n_classes=4)
    assert report == AccuracyReport(
        accuracy=0.5,
        half_width=bootstrap_half_width(np.array([True, False, True, False])),
        accuracy_by_class=(0.5, 1.0, None, 0.0),
        balanced_accuracy=0.5,  # (0.5 + 1 + 0) / 3
        n=4,
    )
    assert report.half_width > 0


def test_balanced_accuracy_gives_every_class_the_same_weight():
    report = score(np.array([0, 0, 0, 0]), np.array([0, 0, 0, 1]), n_classes=2)
    assert (report.accuracy, report.balanced_accuracy) == (0.75, 0.5)


def test_one_class_all_right():
    report = score(np.array([0, 0, 0]), np.array([0, 0, 0]), n_classes=1)
    assert report == AccuracyReport(1.0, 0.0, (1.0,), 1.0, 3)


def test_report_is_json_ready():
    report = score(np.array([0, 2, 2], dtype=np.int64), np.array([0, 0, 2], dtype=np.uint8), n_classes=3)
    written = report.as_dict()
    assert json.loads(json.dumps(written, allow_nan=False)) == written
    assert written["accuracy_by_class"] == [0.5, None, 1.0]
    assert list(written) == ["accuracy", "half_width", "accuracy_by_class", "balanced_accuracy", "n", "spread"]
    assert written["spread"] is None  # of one model


def test_several_models_are_scored_by_their_means():
    labels = np.array([0, 0, 1, 1])
    predicted = np.array([[0, 0, 1, 0], [0, 1, 0, 0]])  # three right, one right
    report = score(predicted, labels, n_classes=3)
    assert report.accuracy == 0.5
    assert report.spread == 0.25  # 0.75 and 0.25 lie a quarter from their mean
    assert report.accuracy_by_class == (0.75, 0.25, None)  # (2 + 1) / 4, (1 + 0) / 4
    assert report.balanced_accuracy == 0.5
    assert report.n == 4
    assert report.half_width == bootstrap_half_width(predicted == labels)


def test_one_model_in_a_row_of_its_own_is_scored_as_one():
    labels, predicted = np.array([0, 0, 1, 2]), np.array([0, 1, 1, -1])
    one, row = score(predicted, labels, 3), score(predicted[None], labels, 3)
    assert (row.accuracy, row.accuracy_by_class, row.spread) == (one.accuracy, one.accuracy_by_class, 0.0)
    assert row.half_width == pytest.approx(one.half_width, abs=0.01)


def test_score_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="no test images"):
        score(np.array([], dtype=int), np.array([], dtype=int), 2)
    with pytest.raises(ValueError, match="no test images"):
        score(np.empty((0, 2), dtype=int), np.array([0, 1]), 2)
    for predicted in (np.array([0, 1]), np.zeros((2, 3), dtype=int), np.zeros((1, 1, 1), dtype=int)):
        with pytest.raises(ValueError, match="one length"):
            score(predicted, np.array([0]), 2)
    with pytest.raises(ValueError, match=r"0\.\.1; they span 0\.\.2"):
        score(np.array([0, 1]), np.array([0, 2]), 2)
    with pytest.raises(ValueError, match=r"span -1\.\.0"):
        score(np.array([0, 1]), np.array([0, -1]), 2)


def test_evaluation_imports_without_torch():
    modules = ("accuracy", "identification", "relabeling", "statistics")
    code = (
        "import sys, " + ", ".join(f"fedsir.evaluate.{name}" for name in modules) + "; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
