"""Stage II: residual subspaces, references, scores, rules, on vectors small enough to check by hand."""

import dataclasses
import math

import numpy as np
import pytest

from fedsir.stages.relabel import (
    ClassSpectra,
    References,
    aggregate_references,
    direction_scores,
    dominant_block,
    extract_spectra,
    fault_of,
    relabel,
    reliability,
    residual_scores,
    residual_subspace,
)
from fedsir.stages.spectrum import Spectrum, class_features

INF = math.inf


def spectrum_of(*sigma: float) -> Spectrum:
    return Spectrum(np.array(sigma), np.eye(len(sigma)))


def spectra(
    directions: list[list[float]],
    residuals: list[list[list[float]]],
    counts: list[int],
    gaps: list[float] | None = None,
    shares: list[float] | None = None,
) -> ClassSpectra:
    """Return what a client with these directions (C, d) and residual rows (C, ≤ 2, d) sends."""
    d = len(directions[0])
    padded = np.zeros((len(directions), 2, d), np.float32)
    for label, rows in enumerate(residuals):
        padded[label, : len(rows)] = np.reshape(rows, (-1, d))
    ones = [1.0] * len(directions)
    return ClassSpectra(
        directions=np.array(directions),
        residuals=padded,
        residual_ranks=np.array([len(rows) for rows in residuals]),
        counts=np.array(counts),
        gaps=np.array(gaps or ones),
        leading_shares=np.array(shares or ones),
    )


def references(directions: list[list[float]], residuals: list[list[float]], owned: list[bool]) -> References:
    """Return references with one residual row per class; an empty list means an empty subspace."""
    d = len(directions[0])
    rows = np.zeros((len(directions), 1, d), np.float32)
    for label, row in enumerate(residuals):
        if row:
            rows[label, 0] = row
    return References(np.array(directions), rows, np.array([1 if row else 0 for row in residuals]), np.array(owned))


# ---------------------------------------------------------------- residual subspace


@pytest.mark.parametrize(
    ("sigma", "ratio", "expected"),
    [
        ((10.0, 1.0), 10.0, 1),  # 10 ≥ 10 · 1
        ((9.9, 1.0), 10.0, 2),  # 9.9 < 10, so everything
        ((6.0, 4.0, 1.0), 10.0, 2),  # 6 < 10 · 5, 10 ≥ 10 · 1
        ((5.0, 5.0, 0.5, 0.4), 10.0, 2),  # 10 ≥ 10 · 0.9
        ((1.0, 1.0, 1.0, 1.0), 10.0, 4),  # 3 < 10
        ((1.0, 1.0, 1.0, 1.0), 1.0, 2),  # 2 ≥ 2
        ((7.0,), 10.0, 1),
        ((3.0, 0.0, 0.0), 10.0, 1),
    ],
)
def test_dominant_block(sigma: tuple[float, ...], ratio: float, expected: int) -> None:
    assert dominant_block(np.array(sigma), ratio) == expected


def test_residual_after_the_direction_or_after_the_block() -> None:
    spectrum = spectrum_of(6.0, 4.0, 0.5, 0.3, 0.1)  # k* = 2: 10 ≥ 10 · 0.9
    axes = np.eye(5)
    assert np.array_equal(residual_subspace(spectrum, 2, "after_direction"), axes[1:3])
    assert np.array_equal(residual_subspace(spectrum, 2, "after_block"), axes[2:4])
    assert np.array_equal(residual_subspace(spectrum, 9, "after_block"), axes[2:])
    assert np.array_equal(residual_subspace(spectrum, 2, "after_block", block_ratio=1.0), axes[1:3])  # 6 ≥ 4.9


def test_a_block_that_takes_everything_leaves_an_empty_residual() -> None:
    assert residual_subspace(spectrum_of(1.0, 1.0), 3, "after_block").shape == (0, 2)
    assert residual_subspace(spectrum_of(1.0), 3, "after_direction").shape == (0, 1)


def test_what_a_client_extracts_by_hand() -> None:
    features = np.array([[3.0, 0, 0], [0, 4.0, 0], [0, 0, 2.0], [0, 0, 0]])
    told = extract_spectra(class_features(features, np.array([0, 0, 2, 3]), 4), 2, "after_direction")
    assert told.directions.tolist() == [[0, 1, 0], [0, 0, 0], [0, 0, 1], [0, 0, 0]]
    assert told.residual_ranks.tolist() == [1, 0, 0, 0]
    assert told.residuals[0].tolist() == [[1, 0, 0], [0, 0, 0]]
    assert told.counts.tolist() == [2, 0, 1, 0]  # class 3 is all zeros: a sample, but no direction to vouch for
    assert told.gaps.tolist() == pytest.approx([0.25, 0, 1, 0])  # (4 - 3) / 4; alone: (2 - 0) / 2
    assert told.leading_shares.tolist() == pytest.approx([4 / 7, 0, 1, 0])


# ---------------------------------------------------------------- references


def test_reliability_by_hand() -> None:
    told = spectra([[1.0, 0], [0, 1.0]], [[], []], [10, 4], gaps=[0.5, 1.0], shares=[0.4, 0.25])
    assert reliability(told, "count").tolist() == [10.0, 4.0]
    assert reliability(told, "count_gap_share").tolist() == pytest.approx([2.0, 1.0])


def naive_references(
    clients: list[ClassSpectra], weights: np.ndarray, label: int, rank: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return (v̄, projector of V̄) the slow way: average d × d projectors, then eigh."""
    d = clients[0].directions.shape[1]
    of_directions, of_residuals = np.zeros((d, d)), np.zeros((d, d))
    for client, weight in zip(clients, weights / weights.sum(), strict=True):
        v = client.directions[label].astype(np.float64)
        rows = client.residuals[label, : int(client.residual_ranks[label])].astype(np.float64)
        of_directions += weight * np.outer(v, v)
        of_residuals += weight * rows.T @ rows
    leading = np.linalg.eigh(of_directions).eigenvectors[:, -1]
    top = np.linalg.eigh(of_residuals).eigenvectors[:, -rank:]
    return leading, top @ top.T


@pytest.mark.parametrize("weight", ["count", "count_gap_share"])
def test_references_equal_the_naive_projector_average(weight: str) -> None:
    clients = {}
    for k in range(3):
        labels = np.arange(40 + 20 * k) % 2
        features = np.random.default_rng(k).standard_normal((len(labels), 8)) * [5.0, 3, 2, 1.5, 1, 0.8, 0.5, 0.3]
        clients[f"k{k}"] = extract_spectra(class_features(features + labels[:, None], labels, 3), 3, "after_direction")
    found = aggregate_references(clients, weight=weight, min_samples=1, min_strength=0.0)  # type: ignore[arg-type]
    for label in (0, 1):
        weights = np.stack([reliability(told, weight)[label] for told in clients.values()])  # type: ignore[arg-type]
        direction, projector = naive_references(list(clients.values()), weights, label, rank=3)
        assert abs(float(found.directions[label].astype(np.float64) @ direction)) == pytest.approx(1, abs=1e-6)
        rows = found.residuals[label].astype(np.float64)
        assert np.allclose(rows.T @ rows, projector, atol=1e-5)
    assert found.residual_ranks.tolist() == [3, 3, 0]
    assert found.is_owned.tolist() == [True, True, False]


def test_the_heavier_client_pulls_the_direction() -> None:
    east, north = [[1.0, 0.0]], [[0.0, 1.0]]
    for counts, expected in (((3, 1), east), ((1, 3), north)):
        clients = {"a": spectra(east, [north], [counts[0]]), "b": spectra(north, [east], [counts[1]])}
        found = aggregate_references(clients, weight="count", min_samples=1, min_strength=0.0)
        assert np.allclose(found.directions, np.array(expected), atol=1e-6)


def test_clients_below_min_samples_do_not_take_part() -> None:
    tilted = [[0.6, 0.8]]
    clients = {"a": spectra([[1.0, 0.0]], [[[0.0, 1.0]]], [100]), "b": spectra(tilted, [[[-0.8, 0.6]]], [99])}
    alone = aggregate_references(clients, weight="count", min_samples=100, min_strength=0.0)
    assert np.allclose(alone.directions, np.array([[1.0, 0.0]]))
    both = aggregate_references(clients, weight="count", min_samples=99, min_strength=0.0)
    assert both.directions[0, 1] > 0.3


def test_where_nobody_has_enough_samples_the_largest_speaks_alone() -> None:
    clients = {"a": spectra([[1.0, 0.0]], [[[0.0, 1.0]]], [5]), "b": spectra([[0.6, 0.8]], [[[-0.8, 0.6]]], [7])}
    found = aggregate_references(clients, weight="count", min_samples=100, min_strength=0.0)
    assert np.allclose(found.directions, np.array([[0.6, 0.8]]))
    assert np.allclose(found.residuals[0, 0], np.array([-0.8, 0.6]))
    assert found.residual_ranks.tolist() == [1]


def test_a_weak_average_lets_the_largest_client_speak_alone() -> None:
    # Orthogonal directions of weight 49 · 1 and 51 · 0.94 = 47.94: the strength is 1.06 / 96.94 = 0.011.
    # b has more samples, a more weight; only the fallback asks for size.
    clients = {
        "a": spectra([[1.0, 0, 0]], [[[0.0, 0, 1]]], [49], gaps=[1.0]),
        "b": spectra([[0.0, 1, 0]], [[[0.0, 0, 1]]], [51], gaps=[0.94]),
    }
    averaged = aggregate_references(clients, weight="count_gap_share", min_samples=1, min_strength=0.0)
    fallen_back = aggregate_references(clients, weight="count_gap_share", min_samples=1, min_strength=0.03)
    assert np.allclose(averaged.directions, np.array([[1.0, 0, 0]]), atol=1e-6)
    assert np.allclose(fallen_back.directions, np.array([[0.0, 1, 0]]), atol=1e-6)


def test_a_client_without_reliability_is_not_averaged_but_may_speak_alone() -> None:
    clients = {"a": spectra([[1.0, 0.0]], [[[0.0, 1.0]]], [9], gaps=[0.0])}
    found = aggregate_references(clients, weight="count_gap_share", min_samples=1, min_strength=0.0)
    assert found.directions.tolist() == [[1.0, 0.0]]
    assert found.is_owned.tolist() == [True]


def test_one_clean_client_teaches_what_it_knows() -> None:
    told = spectra([[0.6, 0.8], [0.0, 0.0]], [[[0.8, -0.6]], []], [200, 0])
    found = aggregate_references({"a": told}, weight="count", min_samples=1, min_strength=0.03)
    assert np.allclose(found.directions, told.directions)
    assert np.allclose(found.residuals[0, 0], np.array([0.8, -0.6]))
    assert found.is_owned.tolist() == [True, False]
    assert found.residual_ranks.tolist() == [1, 0]


def test_the_sign_of_a_direction_does_not_matter() -> None:
    clients = {"a": spectra([[1.0, 0.0]], [[]], [10]), "b": spectra([[-1.0, 0.0]], [[]], [10])}
    found = aggregate_references(clients, weight="count", min_samples=1, min_strength=0.03)
    assert np.allclose(np.abs(found.directions), np.array([[1.0, 0.0]]))


# ---------------------------------------------------------------- scores


def test_scores_by_hand() -> None:
    refs = references([[1.0, 0.0], [0.6, 0.8]], [[0.0, 1.0], [0.8, -0.6]], [True, True])
    z = np.array([[0.0, -2.0]])
    assert direction_scores(z, refs).tolist() == [pytest.approx([0.0, 0.8])]  # unit z
    assert residual_scores(z, refs).tolist() == [pytest.approx([2.0, 1.2])]  # raw z
    wide = References(np.eye(3), np.tile(np.eye(3)[None, 1:], (3, 1, 1)), np.array([2, 2, 2]), np.ones(3, bool))
    # ‖(3, 4)‖ / √2
    assert residual_scores(np.array([[1.0, 3, 4]]), wide)[0].tolist() == pytest.approx([5 / math.sqrt(2)] * 3)


def test_a_class_nobody_owns_is_never_assigned() -> None:
    refs = references([[1.0, 0.0], [0.0, 0.0]], [[0.0, 1.0], []], [True, False])
    z = np.random.default_rng(0).standard_normal((50, 2))
    assert (direction_scores(z, refs)[:, 1] == -INF).all()
    assert (residual_scores(z, refs)[:, 1] == INF).all()
    for rule in ("direction", "residual", "agreement"):
        assert not relabel(z, np.zeros(50, np.int64), refs, rule).labels.any()


def test_an_empty_residual_never_wins() -> None:
    refs = references([[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], []], [True, True])
    z = np.array([[0.0, 5.0]])  # as far from class 0 as can be
    assert residual_scores(z, refs)[0].tolist() == [5.0, INF]
    assert relabel(z, np.array([1]), refs, "residual").labels.tolist() == [0]
    assert relabel(z, np.array([1]), refs, "agreement").labels.tolist() == [1]


# ---------------------------------------------------------------- rules

# Class 0 points east and has little of north; class 1 the other way round; class 2 likes both.
RULES_REFERENCES = References(
    directions=np.array([[1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0]]),
    residuals=np.array([[[0.0, 1, 0]], [[0.0, 0, 1]], [[1.0, 0, 0]]]),
    residual_ranks=np.array([1, 1, 1]),
    is_owned=np.array([True, True, True]),
)


def test_agreement_decides_and_disagreement_keeps_the_given_label() -> None:
    features = np.array(
        [
            [3.0, 0.1, 0.2],  # direction 0; residuals (0.1, 0.2, 3.0) → 0: agree
            [3.0, 1.0, 0.5],  # direction 0; residuals (1.0, 0.5, 3.0) → 1: disagree
        ]
    )
    given = np.array([2, 2])
    found = relabel(features, given, RULES_REFERENCES)
    assert found.labels.tolist() == [0, 2]
    assert found.is_undecided.tolist() == [False, True]
    assert relabel(features, given, RULES_REFERENCES, "direction").labels.tolist() == [0, 0]
    assert relabel(features, given, RULES_REFERENCES, "residual").labels.tolist() == [0, 1]


def test_relabelling_from_the_given_labels_twice_equals_once() -> None:
    features = np.random.default_rng(1).standard_normal((200, 3))
    given = np.arange(200) % 3
    for rule in ("direction", "residual", "agreement"):
        once = relabel(features, given, RULES_REFERENCES, rule)
        again = relabel(features, given, RULES_REFERENCES, rule)
        chained = relabel(features, once.labels, RULES_REFERENCES, rule)
        assert np.array_equal(once.labels, again.labels)
        assert np.array_equal(once.labels, chained.labels)
        assert np.array_equal(once.is_undecided, chained.is_undecided)
    assert 0 < int(once.is_undecided.sum()) < 200


def test_length_of_a_feature_does_not_matter() -> None:
    features = np.random.default_rng(2).standard_normal((100, 3))
    given = np.arange(100) % 3
    one, other = relabel(features, given, RULES_REFERENCES), relabel(37 * features, given, RULES_REFERENCES)
    assert np.array_equal(one.labels, other.labels)


def test_without_any_class_the_given_labels_stay() -> None:
    nobody = references([[0.0, 0.0], [0.0, 0.0]], [[], []], [False, False])
    given = np.array([1, 0, 1])
    found = relabel(np.ones((3, 2)), given, nobody, "direction")
    assert found.labels.tolist() == [1, 0, 1]
    assert found.is_undecided.tolist() == [True, True, True]


def test_the_direction_rule_needs_no_residuals() -> None:
    refs = references([[1.0, 0.0], [0.0, 1.0]], [[], []], [True, True])
    assert relabel(np.array([[0.1, 5.0]]), np.array([0]), refs, "direction").labels.tolist() == [1]


def test_a_feature_of_zeros_says_nothing() -> None:
    found = relabel(np.zeros((1, 3)), np.array([2]), RULES_REFERENCES)
    assert found.labels.tolist() == [2]


def test_features_that_are_not_finite_change_nothing() -> None:
    found = relabel(np.array([[math.nan, 1.0, 0.0]]), np.array([2]), RULES_REFERENCES)
    assert found.labels.tolist() == [2]
    assert found.is_undecided.tolist() == [True]


# ---------------------------------------------------------------- faults


def test_faults_of_received_spectra() -> None:
    fine = spectra([[0.6, 0.8], [0.0, 0.0]], [[[0.8, -0.6]], []], [5, 0])
    assert fault_of(fine) is None
    for ranks in ([3, 0], [-1, 0]):
        out_of_range = dataclasses.replace(fine, residual_ranks=np.array(ranks))
        assert fault_of(out_of_range) == "spectra: a residual rank or a count is out of range"
    too_long = dataclasses.replace(fine, directions=np.array([[6.0, 8.0], [0.0, 0.0]]))
    assert fault_of(too_long) == "spectra.directions: one is not of unit length"
    claims_a_class = dataclasses.replace(fine, counts=np.array([5, 3]))
    assert fault_of(claims_a_class) == "spectra.directions: one is not of unit length"  # zeros do not make a direction
