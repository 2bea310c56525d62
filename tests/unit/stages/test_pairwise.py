"""Stage I by pairs of classes: effects by hand, what does not matter to them, and who is accused."""

import dataclasses
import json
import math
import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsir.stages.identify import class_directions, pair_similarities
from fedsir.stages.pairwise import (
    ALONE,
    NOTHING_SHARED,
    ClientEffects,
    PairSimilarities,
    client_effects,
    split_by_pairs,
    weigh_groups,
)
from fedsir.stages.spectrum import Array, class_features
from fedsir.stages.split import ClientSplit, OffDiagonal, PairEvidence, split_clients

N_CLASSES = 6
ABOVE = np.triu_indices(N_CLASSES, 1)
PAIR_EFFECTS = np.random.default_rng(0).uniform(0.6, 1.6, (N_CLASSES, N_CLASSES))[ABOVE]


def of_values(values: Array, error: float | Array = 0.03) -> PairSimilarities:
    """Return what a client sends whose ℓ are these, each with this error; NaN is a gap."""
    similarity = np.tanh(values)
    return PairSimilarities(
        similarity.astype(np.float32), (error * (1 - similarity**2) + 0 * values).astype(np.float32)
    )


def clients(effects: Sequence[float], scatter: float = 0.0, seed: int = 0) -> dict[str, PairSimilarities]:
    """Return clients a, b, … with these effects; their pairs scatter about them."""
    noise = scatter * np.random.default_rng(seed).standard_normal((len(effects), len(PAIR_EFFECTS)))
    return {chr(97 + k): of_values(PAIR_EFFECTS + effect + noise[k]) for k, effect in enumerate(effects)}


def split_of(pairs: dict[str, PairSimilarities], **missing: str) -> ClientSplit:
    return split_by_pairs(told(pairs), pairs, missing)


def told(pairs: dict[str, PairSimilarities]) -> dict[str, OffDiagonal]:
    means = {client: float(np.nanmean(sent.similarity)) for client, sent in pairs.items()}
    return {client: OffDiagonal(mean, mean**2, N_CLASSES) for client, mean in means.items()}


def without(sent: PairSimilarities, *classes: int) -> PairSimilarities:
    """Return what a client sends that lacks these classes."""
    is_gap = np.isin(ABOVE[0], classes) | np.isin(ABOVE[1], classes)
    return PairSimilarities(*(np.where(is_gap, np.nan, part).astype(np.float32) for part in vars(sent).values()))


# ---------------------------------------------------------------- effects


def test_effects_are_what_pairs_do_not_explain() -> None:
    found = client_effects(list(clients([0.0, 0.3, 0.1]).values()))
    assert found.effect - found.effect[0] == pytest.approx([0.0, 0.3, 0.1], abs=1e-5)
    assert found.spread == pytest.approx(0.0225)  # nobody differs in single pairs


def test_the_error_of_an_effect_by_hand() -> None:
    # Three pairs of three classes, each known to 0.04 and no better than 0.02: variance v = 0.0016 + 0.0004 = 0.002.
    # Every two of the pairs share a class, so their errors correlate by 1/4: the mean has (3 v + 6 v / 4) / 9 = v / 2.
    found = client_effects([of_values(np.array([0.5, 0.7, 0.9]), 0.04) for _ in range(2)])
    assert found.error == pytest.approx([math.sqrt(0.001)] * 2, rel=1e-4)


def test_a_pair_that_nobody_else_has_says_nothing_of_its_client() -> None:
    both = clients([0.0, 0.2])
    # a alone has class 5; whatever its pairs are like, nothing moves
    strange = np.where((ABOVE[0] == 5) | (ABOVE[1] == 5), 3.0, PAIR_EFFECTS)
    for a in (both["a"], of_values(strange)):
        found = client_effects([a, without(both["b"], 5)])
        assert found.effect[1] - found.effect[0] == pytest.approx(0.2, abs=1e-5)


def test_clients_that_differ_in_single_pairs_are_believed_to_differ_as_a_whole() -> None:
    found = client_effects(list(clients([0.0] * 30, scatter=0.2).values()))
    assert found.spread == pytest.approx(1.75 * 0.2, rel=0.1)  # the ratio, times the scatter beyond the errors


EFFECTS = st.lists(st.integers(-20, 60).map(lambda n: n / 100), min_size=2, max_size=7)


@settings(max_examples=40, deadline=None)
@given(effects=EFFECTS, seed=st.integers(0, 99), data=st.data())
def test_what_does_not_matter(effects: list[float], seed: int, data: st.DataObject) -> None:
    """Order of the clients, names of the classes, and how alike two classes are on all clients."""
    pairs = clients(effects, scatter=0.05, seed=seed)
    one = split_of(pairs)
    shuffled = dict(data.draw(st.permutations(list(pairs.items()))))
    renamed = data.draw(st.permutations(range(N_CLASSES)))
    full = np.zeros((N_CLASSES, N_CLASSES), int)
    full[ABOVE] = np.arange(len(ABOVE[0]))
    place = (full + full.T)[np.ix_(renamed, renamed)][ABOVE]
    shift = np.random.default_rng(seed).uniform(-0.4, 0.4, len(place))
    others = (
        split_of(shuffled),
        split_of({k: PairSimilarities(p.similarity[place], p.error[place]) for k, p in pairs.items()}),
        split_of({k: of_values(np.arctanh(p.similarity.astype(float)) + shift) for k, p in pairs.items()}),
    )
    for other in others:
        assert isinstance(one.evidence, PairEvidence) and isinstance(other.evidence, PairEvidence)
        assert other.evidence.probability == pytest.approx(one.evidence.probability, abs=1e-3)
        if abs(one.evidence.probability - 0.5) > 1e-3:
            assert set(other.noisy) == set(one.noisy)
        for client, (effect, error) in one.effects.items():
            assert other.effects[client] == pytest.approx((effect, error), abs=1e-4)


@settings(max_examples=40, deadline=None)
@given(effects=EFFECTS, data=st.data())
def test_missing_classes_do_not_move_effects(effects: list[float], data: st.DataObject) -> None:
    lacking = [data.draw(st.sets(st.integers(2, N_CLASSES - 1), max_size=3)) for _ in effects]  # all have 0 and 1
    sent = [without(p, *gaps) for p, gaps in zip(clients(effects).values(), lacking, strict=True)]
    found = client_effects(sent)
    assert found.effect - found.effect[0] == pytest.approx(np.array(effects) - effects[0], abs=1e-4)


# ---------------------------------------------------------------- two groups or one


def test_the_probability_of_two_groups_by_hand() -> None:
    # Two clients whose effects are 0.5 apart, each known to √(0.08² + 0.06²) = 0.1. One group: their distance is normal
    # with variance 0.02. Two groups: a rise of 0.5 has density exp(-0.5).
    evidence, posterior = weigh_groups(ClientEffects(np.array([0.0, 0.5]), np.array([0.08, 0.08]), 0.06))
    one = math.exp(-(0.5**2) / 0.04) / math.sqrt(2 * math.pi * 0.02)
    assert evidence.probability == pytest.approx(math.exp(-0.5) / (math.exp(-0.5) + one))
    assert evidence.separation == pytest.approx(5.0)
    assert posterior[0] == 0 and posterior[1] > 0.99


@pytest.mark.parametrize("n_noisy", [1, 5, 7, 9])
def test_the_lower_effects_are_clean_however_few(n_noisy: int) -> None:
    split = split_of(clients([0.0] * (10 - n_noisy) + [0.35 + 0.02 * k for k in range(n_noisy)], scatter=0.03))
    assert split.noisy == tuple("abcdefghij"[10 - n_noisy :])
    assert split.two_groups == "found"
    assert all(abs(split.effects[client][0]) < 0.1 for client in split.clean)
    assert split.effects["j"][0] == pytest.approx(0.35 + 0.02 * (n_noisy - 1), abs=0.06)


def test_noisy_clients_need_not_be_alike() -> None:
    assert split_of(clients([0.0, 0.02, 0.3, 0.9, 1.6, 0.01], scatter=0.03)).noisy == ("c", "d", "e")


def test_identical_clients_are_all_clean() -> None:
    split = split_of(clients([0.0] * 5))
    assert (split.clean, split.noisy, split.two_groups) == (tuple("abcde"), (), "not found")
    assert split.evidence == PairEvidence(0.0, 0.0)
    assert set(split.posterior_noisy.values()) == {0.0}


def test_one_group_is_rarely_called_two() -> None:
    alarms = [
        bool(split_of(clients([0.0] * n, scatter=0.03, seed=seed)).noisy) for n in (3, 6, 12) for seed in range(30)
    ]
    assert np.mean(alarms) < 0.05


def test_a_client_of_whom_little_is_known_is_not_drawn_along() -> None:
    """Its effect is the highest, but it rests on one pair that is hardly known."""
    pairs = clients([0.0, 0.01, -0.01, 0.3, 0.0, 0.02, 0.01, -0.02], scatter=0.02)
    vague = np.full(len(PAIR_EFFECTS), np.nan)
    vague[0] = PAIR_EFFECTS[0] + 0.5
    split = split_of({**pairs, "vague": of_values(vague, 0.5)})
    assert split.noisy == ("d",)
    assert split.effects["vague"][0] > split.effects["d"][0]
    assert split.effects["vague"][1] > 0.4


# ---------------------------------------------------------------- who cannot be compared


def test_who_shares_no_pair_is_not_assessed() -> None:
    pairs = clients([0.0, 0.01, 0.4, 0.0], scatter=0.02)
    pairs["d"] = without(pairs["d"], 0, 1, 2, 3)
    pairs |= {k: without(pairs[k], 5) for k in "abc"}
    split = split_of(pairs, z="dropped out")
    assert split.noisy == ("c",)
    assert split.not_assessed == {"z": "dropped out", "d": ALONE}
    assert split.untrusted == ("c", "z", "d")


def test_clients_are_linked_by_others_too() -> None:
    """a and c share no pair, but b shares one with each."""
    full = clients([0.0, 0.1, 0.5])
    chain = {"a": without(full["a"], 3, 4, 5), "b": full["b"], "c": without(full["c"], 0, 1, 2)}
    split = split_of(chain)
    assert not split.not_assessed
    assert split.effects["c"][0] - split.effects["a"][0] == pytest.approx(0.5, abs=1e-4)


def test_where_nobody_shares_a_pair_two_numbers_decide() -> None:
    full = clients([0.0, 0.0, 0.0])
    apart = {
        "a": without(full["a"], 2, 3, 4, 5),
        "b": without(full["b"], 0, 1, 4, 5),
        "c": without(full["c"], 0, 1, 2, 3),
    }
    split = split_of(apart, z="died")
    assert split == split_clients(told(apart), "auto", {"z": "died"}, note=NOTHING_SHARED)
    assert split.effects == {} and split.clean == ("a", "b", "c")
    empty = {k: without(sent, *range(6)) for k, sent in full.items()}
    assert split_by_pairs(told(full), empty | {"a": full["a"]}).note == NOTHING_SHARED


def test_one_client_and_none() -> None:
    assert split_by_pairs({}, {}) == split_clients({}, "auto")
    alone = split_of(clients([0.3]))
    assert (alone.clean, alone.note) == (("a",), "")


@pytest.mark.parametrize(
    ("similarity", "error", "fault"),
    [
        ([0.5, math.nan, 0.5], [0.1, 0.1, 0.1], "lack different pairs"),
        ([0.5, 1.5, 0.5], [0.1, 0.1, 0.1], r"not in \[0, 1\]"),
        ([0.5, 0.5, 0.5], [0.1, -0.1, 0.1], "negative"),
    ],
)
def test_numbers_that_make_no_sense_are_a_reason(similarity: list[float], error: list[float], fault: str) -> None:
    bad = PairSimilarities(np.array(similarity, np.float32), np.array(error, np.float32))
    good = of_values(np.array([0.5, 0.6, 0.7]))
    statistics = dict.fromkeys("abcd", OffDiagonal(0.5, 0.3, 3))
    split = split_by_pairs(statistics, {"a": good, "b": bad, "c": good, "d": None})
    with pytest.raises(AssertionError, match=fault):
        raise AssertionError(split.not_assessed["b"])
    assert split.not_assessed["d"] == "it sent no pairs of classes"
    assert split.clean == ("a", "c")


def test_a_claim_to_know_everything_weighs_no_more_than_the_floor() -> None:
    """A client with errors of 0 cannot fix what a pair is like: the others' effects stay where they were."""
    pairs = clients([0.0, 0.02, 0.3, 0.01], scatter=0.02)
    boaster = PairSimilarities(pairs["d"].similarity, np.zeros_like(pairs["d"].error))
    assert split_of({**pairs, "d": boaster}).noisy == split_of(pairs).noisy == ("c",)


def test_a_split_survives_json_and_older_files_are_read() -> None:
    split = split_of(clients([0.0, 0.02, 0.4], scatter=0.02), z="failed")
    tree = json.loads(json.dumps(dataclasses.asdict(split)))
    assert ClientSplit.from_tree(tree) == split
    assert isinstance(ClientSplit.from_tree(tree).evidence, PairEvidence)
    older = dataclasses.asdict(split_clients(told(clients([0.0, 0.1, 0.4]))))
    assert ClientSplit.from_tree({k: v for k, v in older.items() if k not in ("effects", "note")}).effects == {}
    with pytest.raises((ValueError, TypeError)):
        ClientSplit.from_tree(tree | {"effects": {"a": [1.0]}})


def test_a_thousand_clients_in_little_memory() -> None:
    random = np.random.default_rng(0)
    n_pairs = math.comb(40, 2)
    effects = np.where(np.arange(1000) < 300, 0.0, random.uniform(0.2, 1.5, 1000))
    values = random.uniform(0.5, 1.5, n_pairs) + effects[:, None] + 0.03 * random.standard_normal((1000, n_pairs))
    values[random.random(values.shape) < 0.5] = np.nan
    pairs = {str(k): of_values(row) for k, row in enumerate(values)}
    statistics = dict.fromkeys(pairs, OffDiagonal(0.5, 0.3, 40))
    tracemalloc.start()
    split = split_by_pairs(statistics, pairs)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert split.clean == tuple(str(k) for k in range(300))
    assert peak < 6 * values.nbytes


# ---------------------------------------------------------------- what a client sends


def test_few_samples_do_not_make_classes_look_less_alike() -> None:
    """Seen through 12 samples of each class, the plain cosine is too low, and the corrected one right on average."""
    random = np.random.default_rng(1)
    means = np.ones((2, 30))
    means[0, :5] += 2.0
    true = float(means[0] @ means[1] / np.linalg.norm(means[0]) / np.linalg.norm(means[1]))
    plain, corrected, errors = [], [], []
    labels = np.repeat([0, 1], 12)
    for _ in range(400):
        collected = class_features(means[labels] + 0.8 * random.standard_normal((24, 30)), labels, 2)
        directions = class_directions(collected)
        sent = pair_similarities(collected, directions)
        plain.append(abs(directions[0] @ directions[1]))
        corrected.append(float(sent.similarity[0]))
        errors.append(float(sent.error[0]))
    assert np.mean(plain) < true - 0.03
    assert np.mean(corrected) == pytest.approx(true, abs=0.01)
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(np.std(corrected), rel=0.3)


def test_classes_that_say_too_little_are_gaps() -> None:
    random = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2, 3], [30, 4, 5, 30])  # class 1 has too few samples, class 4 none
    features = 1 + 0.2 * random.standard_normal((len(labels), 200))
    features[labels == 2] -= 1  # about zero: its leading direction is chance
    collected = class_features(features, labels, 5)
    sent = pair_similarities(collected, class_directions(collected))
    pairs = list(zip(*np.triu_indices(5, 1), strict=True))
    known = [pair for pair, value in zip(pairs, sent.similarity, strict=True) if not np.isnan(value)]
    assert known == [(0, 3)]
    assert np.array_equal(np.isnan(sent.error), np.isnan(sent.similarity))


def test_large_classes_kept_as_gram_matrices_say_the_same() -> None:
    random = np.random.default_rng(0)
    labels = np.repeat([0, 1], 20)
    features = random.standard_normal((40, 25)) + np.where(labels, 2.0, 1.0)[:, None]
    few = class_features(features, labels, 2)
    large = class_features(features[:, :15], labels, 2)
    padded = class_features(np.pad(features[:, :15], ((0, 0), (0, 10))), labels, 2)
    assert large.n_kept(0) == 15 * 15 and few.n_kept(0) == 20 * 25
    for one, other in zip(
        *(vars(pair_similarities(c, class_directions(c))).values() for c in (large, padded)), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-5)
