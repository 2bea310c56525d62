"""The interval of a noise rate: it covers, narrows with samples, and is never narrower than the model is exact."""

import numpy as np
import pytest

from fedsir.stages.bayes import label_log_likelihood, weigh_labels
from fedsir.stages.rate_interval import MODEL_ERROR, RATES, _blurred, rate_interval

N_CLASSES = 4


def labelled(n: int, rate: float, seed: int, distance: float = 3.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return true log-likelihoods (n, C), given labels with symmetric noise, and where they are wrong."""
    random = np.random.default_rng(seed)
    true = random.integers(0, N_CLASSES, n)
    x = np.eye(N_CLASSES)[true] * distance + random.normal(size=(n, N_CLASSES))
    is_wrong = random.random(n) < rate
    given = np.where(is_wrong, (true + random.integers(1, N_CLASSES, n)) % N_CLASSES, true)
    return distance * x, given, is_wrong


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5])
def test_it_covers_where_the_model_is_true(rate: float) -> None:
    covered = []
    for seed in range(60):
        scores, given, _ = labelled(150, rate, seed)
        found = rate_interval(weigh_labels(scores, given, 300.0, temperature=1.0), given, model_error=1e-9)
        assert 0 <= found.low <= found.rate <= found.high <= 1
        covered.append(found.low <= rate <= found.high)
    assert np.mean(covered) >= 0.9


def test_more_samples_narrow_it_down_to_what_the_model_is_worth() -> None:
    widths = []
    for n in (100, 1000, 10_000):
        scores, given, _ = labelled(n, 0.3, seed=1)
        found = rate_interval(weigh_labels(scores, given, 300.0, temperature=1.0), given)
        widths.append(found.high - found.low)
    assert widths[0] > 2 * widths[1] > 2 * widths[2]
    assert widths[2] > 3.9 * MODEL_ERROR


def test_a_client_without_a_wrong_label_begins_at_zero() -> None:
    scores, given, _ = labelled(400, 0.0, seed=3)
    found = rate_interval(weigh_labels(scores, given, 300.0, temperature=1.0), given)
    assert found.low == 0 and found.high < 0.05


def test_blurring_keeps_the_sum_and_widens() -> None:
    belief = np.zeros(len(RATES))
    belief[[0, 200, 399]] = 0.25, 0.5, 0.25
    wide = _blurred(belief, 0.01)
    assert wide.shape == belief.shape and wide.sum() == pytest.approx(1)
    assert 0.04 < wide[200] < 0.2 and wide[0] > 0.12
    assert _blurred(belief, 0.0) is belief


def test_the_likelihood_is_highest_at_the_true_temperature() -> None:
    scores, given, _ = labelled(3000, 0.2, seed=4)
    temperatures = np.array([0.25, 0.5, 1.0, 2.0, 4.0])
    assert label_log_likelihood(scores, given, temperatures).argmax() == 2
    unowned = np.where(np.arange(N_CLASSES) < 1, scores, -np.inf)
    assert not label_log_likelihood(unowned, given, temperatures).any(), "one class says nothing"
