"""What the others' classes look like: the fast way must agree with the plain one."""

import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from fedsir.stages import leave_one_out
from fedsir.stages.bayes import FEW_CLASSES, _Evidence
from fedsir.stages.discriminant import class_moments, discriminant, discriminant_by_inverse, fewest_of_a_noisy_class
from fedsir.stages.inverse import inverse_of_positive
from fedsir.stages.leave_one_out import Others
from fedsir.stages.noise_rates import discriminants_of_others
from fedsir.stages.spectrum import one_thread


def federation(n_clients: int = 3, n: int = 200, d: int = 100) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    random = np.random.default_rng(1)
    centres, mixing = random.normal(size=(4, d)) * 3, random.normal(size=(d, d))
    clients = {}
    for k in range(n_clients):
        labels = random.integers(0, 4, n)
        clients[str(k)] = ((centres[labels] + random.normal(size=(n, d)) @ mixing + 50).astype(np.float32), labels)
    return clients


@pytest.mark.parametrize("d", [3, 64, 65, 200])
def test_an_inverse_by_halves_is_the_inverse(d: int) -> None:
    rows = np.random.default_rng(0).normal(size=(2 * d, d))
    matrix = (rows.T @ rows / len(rows) + 0.2 * np.eye(d)).astype(np.float32)
    np.testing.assert_allclose(inverse_of_positive(matrix) @ matrix, np.eye(d), atol=1e-4)


def test_the_fast_discriminant_is_the_plain_one_to_five_digits() -> None:
    samples = federation()
    total = sum((class_moments(*samples[k], 4) for k in ("1", "2")), class_moments(*samples["0"], 4))
    plain, fast = discriminant([total]), discriminant_by_inverse(total)
    np.testing.assert_allclose(fast.weights, plain.weights, atol=1e-5 * np.abs(plain.weights).max())
    np.testing.assert_allclose(fast.biases, plain.biases, rtol=1e-5)
    flat = discriminant_by_inverse(class_moments(np.ones((4, 3)), np.array([0, 0, 1, 1]), 2))
    assert np.isfinite(flat.weights).all()


def test_scores_are_by_all_the_others_whether_sums_are_kept_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    samples, trust = federation(), {"0": 1.0, "1": 0.5, "2": 0.25}
    plain = discriminants_of_others({k: class_moments(*each, 4) for k, each in samples.items()}, trust)
    kept = dict(Others(samples, 4).scores(trust))
    for k, fitted in plain.items():
        expected = samples[k][0] @ fitted.weights.T + fitted.biases
        assert np.isfinite(kept[k]).all()
        np.testing.assert_allclose(kept[k], expected, atol=1e-3 * np.abs(expected).max())
    monkeypatch.setattr(leave_one_out, "MOST_KEPT", 0)
    for k, scores in Others(samples, 4).scores(trust):
        np.testing.assert_array_equal(scores, kept[k])


def test_a_class_needs_twenty_samples_or_a_tenth_of_the_features() -> None:
    assert (fewest_of_a_noisy_class(10), fewest_of_a_noisy_class(512)) == (20, 51)


def test_many_classes_are_counted_as_few_are(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(2)
    n_classes = FEW_CLASSES + 8
    evidence = _Evidence(random.normal(size=(300, n_classes)) * 3, random.integers(0, n_classes, 300))
    many = evidence.fit(0.5, 10.0, 20)
    monkeypatch.setattr("fedsir.stages.bayes.FEW_CLASSES", n_classes)
    few = evidence.fit(0.5, 10.0, 20)
    np.testing.assert_allclose(many.transition, few.transition, atol=1e-12)
    assert many.log_likelihood == pytest.approx(few.log_likelihood, abs=1e-8)


def test_threads_stay_limited_until_the_last_one_is_done() -> None:
    def limits() -> set[int]:
        return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}

    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with one_thread():
            entered.set()
            leave.wait(10)

    before, thread = limits(), threading.Thread(target=other)
    with one_thread():
        thread.start()
        assert entered.wait(10)
    inside = limits()
    leave.set()
    thread.join()
    assert 1 in inside and limits() == before
