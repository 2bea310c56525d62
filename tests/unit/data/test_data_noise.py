import numpy as np
import pytest

from fedsir.data import noise
from fedsir.data.cifar_facts import CIFAR10, CIFAR100, CIFAR100_CLASSES, CIFAR100_SUPERCLASS
from fedsir.data.digits import CONFUSED_WITH
from fedsir.data.stratify import draw_by_class, hold_out_fifth, largest_remainder, quota_by_class
from fedsir.randomness import KeyedRandom

RANDOM = KeyedRandom(0, ("test",))


def test_symmetric_flips_the_rounded_share_of_each_class() -> None:
    labels = np.array([0] * 10 + [1] * 5 + [3] * 1)
    given = noise.symmetric(labels, 4, 0.3, RANDOM)
    changed = given != labels
    # round(3.0), round(1.5) to even, round(0.3)
    assert [int(changed[labels == c].sum()) for c in (0, 1, 3)] == [3, 2, 0]
    assert labels.tolist() == [0] * 10 + [1] * 5 + [3]  # the input is left alone


def test_symmetric_reaches_every_other_class_equally() -> None:
    given = noise.symmetric(np.full(9000, 2), 4, 1.0, RANDOM)
    counts = np.bincount(given, minlength=4)
    assert counts[2] == 0
    assert np.abs(counts[[0, 1, 3]] - 3000).max() < 200  # over four standard deviations of √(9000·2/9) ≈ 45


def test_pair_turns_into_the_next_class() -> None:
    assert noise.pair_targets(3) == (1, 2, 0)
    given = noise.flip_to(np.array([0, 0, 2, 2]), noise.pair_targets(3), 0.5, RANDOM)
    assert sorted(given[:2].tolist()) == [0, 1]
    assert sorted(given[2:].tolist()) == [0, 2]


def test_asymmetric_maps() -> None:
    def name(c: int) -> str:
        return CIFAR10.class_names[c]

    changed = {name(c): name(to) for c, to in enumerate(CIFAR10.confused_with) if c != to}
    expected = {"truck": "automobile", "bird": "airplane", "deer": "horse", "cat": "dog", "dog": "cat"}
    assert changed == expected
    assert len(CIFAR100_CLASSES) == len(CIFAR100_SUPERCLASS) == 100
    assert np.bincount(CIFAR100_SUPERCLASS).tolist() == [5] * 20
    assert sorted(CIFAR100.confused_with) == list(range(100))  # a permutation …
    for c, to in enumerate(CIFAR100.confused_with):  # … within superclasses
        assert c != to
        assert CIFAR100_SUPERCLASS[c] == CIFAR100_SUPERCLASS[to]
    assert {c: to for c, to in enumerate(CONFUSED_WITH) if c != to} == {2: 7, 3: 8, 5: 6, 6: 5, 7: 1}
    # Fish: aquarium_fish 1, flatfish 32, ray 67, shark 73, trout 91.
    assert [CIFAR100.confused_with[c] for c in (1, 32, 67, 73, 91)] == [32, 67, 73, 91, 1]


def test_a_transition_matrix_is_realised_exactly() -> None:
    labels = np.array([0] * 10 + [1] * 4 + [2] * 3)
    matrix = np.array([[0.5, 0.2, 0.3], [0.0, 1.0, 0.0], [0.4, 0.3, 0.3]])
    given = noise.by_transition(labels, matrix, RANDOM)
    # Row 2: 1.2, 0.9, 0.9 of 3 samples; the two larger remainders are rounded up.
    assert noise.realised_transition(labels, given, 3).tolist() == [[5, 2, 3], [0, 4, 0], [1, 1, 1]]


def test_largest_remainder() -> None:
    assert largest_remainder([1.2, 0.9, 0.9], 3) == [1, 1, 1]
    assert largest_remainder([0.5, 0.5, 1.0], 2) == [1, 0, 1]
    assert quota_by_class([100, 50, 1, 0], 10) == [6, 3, 1, 0]


def test_the_published_draw_step_by_step() -> None:
    labels = np.array([0, 1] * 30 + [2])
    parts = [np.arange(0, 20), np.arange(20, 40), np.arange(40, 61)]
    rng, expected = np.random.RandomState(7), labels.copy()
    for k in (0, 2):
        for c in (0, 1, 2):
            # Few small numbers: the set's order is ascending.
            mine = [i for i in parts[k].tolist() if labels[i] == c]
            n_flipped = int(np.round(0.4 * len(mine)))
            if n_flipped:
                for i in rng.choice(np.array(mine), size=n_flipped, replace=False):
                    expected[i] = rng.choice([other for other in (0, 1, 2) if other != c])
    given = noise.authors_symmetric(labels, parts, [0, 2], 3, 0.4, seed=7)
    assert given.tolist() == expected.tolist()
    assert (given != labels).sum() == 4 + 4 + 4 + 4  # 0.4 of 10 of each class; the lone 2 rounds to none
    assert (given[20:40] == labels[20:40]).all()


def test_the_published_order_of_a_large_client_is_that_of_a_set() -> None:
    labels = np.tile(np.arange(3), 20_000)
    positions = np.arange(5, 60_000, 7)
    order = noise._hash_order(labels, positions, 3)
    assert sorted(order.tolist()) == positions.tolist()
    assert order.tolist() != positions.tolist()
    one, two, three = (set(positions[labels[positions] == c]) for c in range(3))  # NumPy integers hash alike
    joined = set(one | two)
    assert order.tolist() == [int(i) for i in set(joined | three)]


def test_a_fifth_is_held_out_of_each_class_and_client() -> None:
    labels, clients = np.repeat([0, 1], 50), np.tile(np.array(["a", "b"]), 50)
    held_out = hold_out_fifth(labels, RANDOM, clients)
    for c in (0, 1):
        for name in ("a", "b"):
            assert ((labels == c) & (clients == name))[held_out].sum() == 5
    assert hold_out_fifth(labels, RANDOM).tolist() != hold_out_fifth(labels, KeyedRandom(1)).tolist()


def test_holding_out_leaves_every_class_and_client_a_sample() -> None:
    labels = np.array([0, 0, 1, 2, 2, 2])
    for seed in range(20):
        held_out = hold_out_fifth(labels, KeyedRandom(seed))
        assert np.bincount(labels[held_out], minlength=3).tolist() == [1, 0, 1]
        clients = np.array(["a", "b", "c", "d", "e", "f"])
        assert hold_out_fifth(labels, KeyedRandom(seed), clients).tolist() == []


@pytest.mark.parametrize("seed", range(5))
def test_draws_by_class_are_exact(seed: int) -> None:
    labels = np.array([0] * 7 + [1] * 3 + [2] * 11)
    drawn = draw_by_class(labels, [7, 1, 5], KeyedRandom(seed))
    assert len(set(drawn.tolist())) == 13
    assert np.bincount(labels[drawn]).tolist() == [7, 1, 5]
