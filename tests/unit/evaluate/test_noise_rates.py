"""Estimated noise rates against the realised ones."""

import pytest

from fedsir.evaluate.noise_rates import NoiseRateReport, score_noise_rates


def test_by_hand() -> None:
    true = {"a": 0.0, "b": 0.5, "c": 0.8}
    report = score_noise_rates(true, {"c": 0.5, "a": 0.1, "unknown": 1.0})  # nobody estimated b
    assert report == NoiseRateReport(mean=pytest.approx(0.2), max=pytest.approx(0.3), n_clients=2)
    assert score_noise_rates(true, {}) is None
