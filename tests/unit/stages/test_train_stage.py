"""Stage III: losses, ramp, averages and distances with the numbers written out."""

import math

import pytest
import torch
import torch.nn.functional as F

from fedsir.stages.train import (
    average_models,
    class_prior,
    daagg_weights,
    kd_ramp,
    la_kd_loss,
    la_loss,
    logit_adjustment,
    model_distance,
)

LOGITS = torch.tensor([[2.0, 0.0, -1.0], [0.5, 1.0, 0.0], [-1.0, 3.0, 0.5]])
TEACHER = torch.tensor([[0.0, 1.0, 0.0], [2.0, -1.0, 0.0], [0.3, 0.2, 0.1]])
LABELS = torch.tensor([0, 2, 1])
ADJUSTMENT = logit_adjustment(torch.tensor([0.5, 0.3, 0.2]))


# ---------------------------------------------------------------- logit adjustment


def test_prior_counts_absent_classes_as_the_floor() -> None:
    labels = torch.tensor([0, 0, 0, 2])
    assert class_prior(labels, 4).tolist() == pytest.approx([3 / 6, 1 / 6, 1 / 6, 1 / 6])
    assert class_prior(labels, 4, floor=0).tolist() == pytest.approx([0.75, 0, 0.25, 0])
    assert class_prior(torch.tensor([], dtype=torch.int64), 2).tolist() == [0.5, 0.5]


def test_adjustment_is_the_scaled_logarithm() -> None:
    prior = torch.tensor([0.5, 0.25, 0.25])
    assert logit_adjustment(prior).tolist() == pytest.approx([math.log(0.5), math.log(0.25), math.log(0.25)])
    assert logit_adjustment(prior, 2.0).tolist() == pytest.approx([2 * math.log(0.5)] + [2 * math.log(0.25)] * 2)
    assert logit_adjustment(prior, 0.0).tolist() == [0.0, 0.0, 0.0]
    assert logit_adjustment(torch.tensor([1.0, 0.0])).isfinite().all()


def test_la_with_a_uniform_prior_is_cross_entropy() -> None:
    uniform = logit_adjustment(class_prior(torch.arange(9) % 3, 3))
    assert la_loss(LOGITS, LABELS, uniform).item() == pytest.approx(F.cross_entropy(LOGITS, LABELS).item())


def test_la_by_hand() -> None:
    # One sample, logits (0, 0), prior (3/4, 1/4): softmax(logits + m) is the prior itself.
    loss = la_loss(torch.zeros(1, 2), torch.tensor([1]), logit_adjustment(torch.tensor([0.75, 0.25])))
    assert loss.item() == pytest.approx(-math.log(0.25))


# ---------------------------------------------------------------- distillation


def la_kd(weight: float, labels: torch.Tensor = LABELS, mask: torch.Tensor | None = None) -> float:
    return la_kd_loss(LOGITS, TEACHER, labels, ADJUSTMENT, weight=weight, temperature=0.8, is_distilled=mask).item()


def test_without_weight_la_kd_is_la() -> None:
    assert la_kd(0.0) == pytest.approx(la_loss(LOGITS, LABELS, ADJUSTMENT).item())


def test_with_full_weight_labels_do_not_matter() -> None:
    assert la_kd(1.0) == la_kd(1.0, labels=torch.tensor([1, 1, 0]))
    assert la_kd(0.5) != la_kd(0.5, labels=torch.tensor([1, 1, 0]))


def test_la_kd_by_hand() -> None:
    # Student (0, 0), prior uniform: q = (1/2, 1/2). Teacher (ln 2 · τ, 0) at τ: p = (2/3, 1/3).
    loss = la_kd_loss(
        torch.zeros(1, 2),
        torch.tensor([[0.5 * math.log(2), 0.0]]),
        torch.tensor([0]),
        torch.zeros(2),
        weight=0.25,
        temperature=0.5,
    )
    kl = 2 / 3 * math.log(4 / 3) + 1 / 3 * math.log(2 / 3)
    assert loss.item() == pytest.approx(0.25 * kl + 0.75 * math.log(2), rel=1e-5)  # no τ² factor


def test_a_teacher_that_agrees_costs_nothing() -> None:
    assert la_kd_loss(
        LOGITS, (LOGITS + ADJUSTMENT) * 0.8, LABELS, ADJUSTMENT, weight=1.0, temperature=0.8
    ).item() == pytest.approx(0, abs=1e-6)


def test_the_mask_chooses_per_sample() -> None:
    everybody, nobody = torch.tensor([True] * 3), torch.tensor([False] * 3)
    assert la_kd(0.4, mask=everybody) == pytest.approx(la_kd(0.4))
    assert la_kd(0.4, mask=nobody) == pytest.approx(la_kd(0.0))
    first_only = la_kd(0.4, mask=torch.tensor([True, False, False]))
    by_sample = [
        la_kd_loss(
            LOGITS[i : i + 1], TEACHER[i : i + 1], LABELS[i : i + 1], ADJUSTMENT, weight=w, temperature=0.8
        ).item()
        for i, w in enumerate((0.4, 0.0, 0.0))
    ]
    assert first_only == pytest.approx(sum(by_sample) / 3)


def test_the_gradient_at_full_weight_is_q_minus_p() -> None:
    logits = LOGITS.clone().requires_grad_()
    la_kd_loss(logits, TEACHER, LABELS, ADJUSTMENT, weight=1.0, temperature=1.0).backward()
    expected = (F.softmax(LOGITS + ADJUSTMENT, dim=1) - F.softmax(TEACHER, dim=1)) / 3  # ∂KL/∂logits = q - p
    assert logits.grad is not None
    assert torch.allclose(logits.grad, expected, atol=1e-6)


# The values of methods.md §2.3.
@pytest.mark.parametrize(
    ("r", "expected"), [(0, 0.0054), (10, 0.0054), (20, 0.050), (30, 0.244), (40, 0.613), (49, 0.8), (99, 0.8)]
)
def test_ramp_of_fednoro(r: int, expected: float) -> None:
    assert kd_ramp(r, peak=0.8, begin=10, end=49) == pytest.approx(expected, abs=6e-4)


@pytest.mark.parametrize(
    ("r", "expected"),
    [(0, 0.0013), (2, 0.0013), (10, 0.0064), (20, 0.030), (30, 0.088), (40, 0.167), (49, 0.2), (99, 0.2)],
)
def test_ramp_of_fedsir(r: int, expected: float) -> None:
    assert kd_ramp(r, peak=0.2, begin=2, end=49) == pytest.approx(expected, abs=6e-4)


def test_no_ramp_is_a_constant() -> None:
    assert kd_ramp(0, peak=0.3, begin=0, end=0) == 0.3
    assert kd_ramp(7, peak=0.3, begin=9, end=2) == 0.3


# ---------------------------------------------------------------- averages


def model(*values: float, counter: int = 0) -> dict[str, torch.Tensor]:
    return {"w": torch.tensor(values), "n": torch.tensor(counter)}


def test_average_by_hand() -> None:
    averaged = average_models([model(1.0, 2.0), model(5.0, -2.0)], [3, 1])
    assert averaged["w"].tolist() == [2.0, 1.0]  # (3 · 1 + 5) / 4, (3 · 2 - 2) / 4
    assert average_models([model(1.0), model(9.0)], [1, 0])["w"].tolist() == [1.0]


def test_integers_are_never_averaged() -> None:
    averaged = average_models([model(0.0, counter=3), model(0.0, counter=9)], [1, 99])
    assert averaged["n"].item() == 3
    assert averaged["n"].dtype == torch.int64


def test_the_average_shares_no_memory_with_its_parts() -> None:
    first = model(1.0, counter=1)
    averaged = average_models([first], [1.0])
    for tensor in averaged.values():
        tensor += 1
    assert (first["w"].item(), first["n"].item()) == (1.0, 1)


def test_averaging_is_summed_in_double_precision() -> None:
    # In float32, 1 + 1e-8 is 1: the small ones would vanish one by one.
    parts = [model(1.0), *[model(2.0**-24)] * 8]
    assert average_models(parts, [1.0] * 9)["w"].item() == pytest.approx((1 + 8 * 2**-24) / 9, rel=1e-7)


@pytest.mark.parametrize(("models", "shares"), [([], []), ([model(1.0)], [0.0]), ([model(1.0)], [-1.0])])
def test_nothing_to_average_is_an_error(models: list[dict[str, torch.Tensor]], shares: list[float]) -> None:
    with pytest.raises(ValueError, match="averaging needs"):
        average_models(models, shares)


# ---------------------------------------------------------------- distances


def test_both_distances_by_hand() -> None:
    one = {"a": torch.tensor([3.0, 0.0]), "b": torch.tensor([[0.0]]), "n": torch.tensor(7)}
    other = {"a": torch.tensor([0.0, 4.0]), "b": torch.tensor([[12.0]]), "n": torch.tensor(900)}
    assert model_distance(one, other, "normalised") == pytest.approx(17.0)  # 5 + 12
    assert model_distance(one, other, "raw") == pytest.approx(13.0)  # √(25 + 144)
    assert model_distance(one, one, "raw") == 0.0


def test_daagg_by_hand() -> None:
    models = {"clean": model(0.0), "near": model(1.0), "far": model(2.0)}
    n_samples = {"clean": 10, "near": 20, "far": 30}
    shares = daagg_weights(models, n_samples, {"clean"}, "normalised")
    raw = [10.0, 20 * math.exp(-0.5), 30 * math.exp(-1)]  # distances 0, 1, 2 over the largest, 2
    assert list(shares.values()) == pytest.approx([value / sum(raw) for value in raw])
    # The worst noisy client keeps exactly e⁻¹ of its weight.
    assert (shares["far"] / 30) / (shares["clean"] / 10) == pytest.approx(math.exp(-1))
    unscaled = daagg_weights(models, n_samples, {"clean"}, "raw")
    assert (unscaled["far"] / 30) / (unscaled["clean"] / 10) == pytest.approx(math.exp(-2))


def test_the_nearest_clean_client_counts() -> None:
    models = {"c1": model(0.0), "noisy": model(9.0), "c2": model(10.0), "other": model(-2.0)}
    shares = daagg_weights(models, dict.fromkeys(models, 1), ["c1", "c2"], "raw")
    assert shares["noisy"] / shares["c1"] == pytest.approx(math.exp(-1))
    assert shares["other"] / shares["c1"] == pytest.approx(math.exp(-2))
    assert shares["c1"] == shares["c2"]


@pytest.mark.parametrize("kind", ["normalised", "raw"])
def test_equal_models_or_no_clean_client_mean_fedavg(kind: str) -> None:
    n_samples = {"a": 1, "b": 3}
    equal = daagg_weights({"a": model(1.0), "b": model(1.0)}, n_samples, {"a"}, kind)  # type: ignore[arg-type]
    no_clean = daagg_weights({"a": model(1.0), "b": model(5.0)}, n_samples, set(), kind)  # type: ignore[arg-type]
    all_clean = daagg_weights({"a": model(1.0), "b": model(5.0)}, n_samples, n_samples, kind)  # type: ignore[arg-type]
    absent = daagg_weights({"a": model(1.0), "b": model(5.0)}, n_samples, {"gone"}, kind)  # type: ignore[arg-type]
    assert equal == no_clean == all_clean == absent == {"a": 0.25, "b": 0.75}


def test_a_huge_raw_distance_gives_no_weight_and_no_nan() -> None:
    models = {"clean": model(0.0), "noisy": model(1e30)}
    assert daagg_weights(models, {"clean": 5, "noisy": 500}, {"clean"}, "raw") == {"clean": 1.0, "noisy": 0.0}
    assert daagg_weights({}, {}, set()) == {}
