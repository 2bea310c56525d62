"""Top-1 accuracy of a model on test images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsir.data.preprocessing import images_at_once
from fedsir.evaluate.reports import Report
from fedsir.evaluate.statistics import bootstrap_half_width

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from numpy.typing import NDArray

NO_PREDICTION = -1  # the class number that stands for "the model gave no number"; it is never right


@dataclass(frozen=True)
class AccuracyReport(Report):
    """Test accuracy of one model.

    Attributes
    ----------
    accuracy : share of test images whose class is predicted right, in [0, 1].
    half_width : 95 % bootstrap half-width over test images, one run; not a spread over seeds.
    accuracy_by_class : (n_classes,), None for a class without test images.
    balanced_accuracy : mean of the per-class accuracies that exist.
    n : number of test images.
    spread : standard deviation of the accuracy over several models that are scored together; None for one model.
    """

    accuracy: float
    half_width: float
    accuracy_by_class: tuple[float | None, ...]
    balanced_accuracy: float
    n: int
    spread: float | None = None


def predict(
    model: torch.nn.Module,
    images: torch.Tensor,
    normalise: Callable[[torch.Tensor], torch.Tensor],
    device: torch.device | str = "cpu",
) -> NDArray[np.int64]:
    """Return the predicted class of each image, shape (n,); -1 where the model's output is not a number.

    The model is run in eval mode and afterwards every module has the mode it had before.

    Parameters
    ----------
    model : maps normalised images (b, channels, height, width) to logits (b, n_classes); is on ``device``.
    images : (n, channels, height, width) uint8.
    normalise : maps a uint8 batch on ``device`` to the model's float input.
    """
    import torch

    if images.dtype != torch.uint8 or images.ndim != 4:
        raise ValueError(
            "images must be uint8 of shape (n, channels, height, width); "
            f"they are {images.dtype} of shape {tuple(images.shape)}."
        )
    if len(images) == 0:
        raise ValueError("There are no images to predict.")
    # One flag per module: a layer frozen in eval mode inside a model in train mode must stay frozen.
    was_training = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.inference_mode():
            batches = images.split(images_at_once(images))
            classes = [_top_class(model(normalise(batch.to(device)))) for batch in batches]
            predicted: NDArray[np.int64] = torch.cat(classes).cpu().numpy()
            return predicted
    finally:
        for module, mode in was_training:
            module.training = mode


def _top_class(logits: torch.Tensor) -> torch.Tensor:
    # argmax takes NaN for the largest value, so a diverged model would score the share of class 0.
    return logits.argmax(dim=1).masked_fill(logits.isnan().any(dim=1), NO_PREDICTION)


def score(predicted: NDArray[np.integer[Any]], labels: NDArray[np.integer[Any]], n_classes: int) -> AccuracyReport:
    """Return accuracy, its bootstrap half-width, and accuracy by class; of several models, their means.

    Parameters
    ----------
    predicted : (n,) predicted classes, or (models, n); -1 (no prediction) counts as wrong.
    labels : (n,) true classes in [0, n_classes).
    """
    if labels.ndim != 1 or predicted.shape[-1:] != labels.shape or predicted.ndim not in (1, 2):
        raise ValueError(
            "predicted and labels must be one-dimensional and of one length; "
            f"their shapes are {predicted.shape} and {labels.shape}."
        )
    if labels.size == 0 or len(predicted) == 0:
        raise ValueError("There are no test images to score.")
    if labels.min() < 0 or labels.max() >= n_classes:
        raise ValueError(f"labels must lie in 0..{n_classes - 1}; they span {labels.min()}..{labels.max()}.")
    correct = predicted == labels
    each = np.atleast_2d(correct)  # (models, n)
    n_by_class = np.bincount(labels, minlength=n_classes)
    n_right = np.stack([np.bincount(labels[row], minlength=n_classes) for row in each])  # (models, classes)
    is_tested = n_by_class > 0
    shares = n_right[:, is_tested] / n_by_class[is_tested]  # (models, tested classes)
    means = iter(shares.T)
    accuracies = each.mean(axis=1)
    return AccuracyReport(
        accuracy=float(np.mean(accuracies)),
        half_width=bootstrap_half_width(correct),
        accuracy_by_class=tuple(float(np.mean(next(means))) if tested else None for tested in is_tested),
        balanced_accuracy=float(np.mean([np.mean(row) for row in shares])),
        n=int(labels.size),
        spread=float(np.std(accuracies)) if correct.ndim == 2 else None,
    )
