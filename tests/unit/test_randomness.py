"""Keyed randomness: a stream is its (seed, key) and nothing else."""

import random

import numpy as np
import pytest
import torch

from fedsir.randomness import KeyedRandom


def test_the_scheme_is_pinned():
    # These numbers change only if the scheme changes, and then every published run changes with them.
    assert KeyedRandom(42).integer() == 4001892530949928412
    assert KeyedRandom(42, ("train", "client-3", 7)).integer() == 4130615128723355078


def test_the_same_key_gives_the_same_numbers():
    one, two = KeyedRandom(5, ("noise", 1)), KeyedRandom(5, ("noise", 1))
    np.testing.assert_array_equal(one.for_numpy().random(8), two.for_numpy().random(8))
    assert torch.equal(torch.rand(8, generator=one.for_torch()), torch.rand(8, generator=two.for_torch()))


def test_every_generator_starts_at_the_beginning():
    stream = KeyedRandom(5, ("noise",))
    first = stream.for_numpy()
    first.random(100)
    np.testing.assert_array_equal(stream.for_numpy().random(3), KeyedRandom(5, ("noise",)).for_numpy().random(3))


def test_deriving_step_by_step_or_at_once_is_the_same_place():
    assert KeyedRandom(9).derive("a").derive("b", 2) == KeyedRandom(9, ("a", "b", 2))
    assert KeyedRandom(9).derive("a").derive("b", 2).integer() == KeyedRandom(9, ("a", "b", 2)).integer()


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ((1,), ("1",)),
        (("ab",), ("a", "b")),
        (("a", "b"), ("b", "a")),
        ((), ("",)),
        ((1, 2), (12,)),
        (("a, b",), ("a", "b")),
        (('a", "b',), ("a", "b")),
        (("é",), ("\\u00e9",)),
    ],
)
def test_different_keys_are_different_streams(one, two):
    assert KeyedRandom(0, one).integer() != KeyedRandom(0, two).integer()
    assert not np.array_equal(KeyedRandom(0, one).for_numpy().random(4), KeyedRandom(0, two).for_numpy().random(4))


def test_the_seed_is_not_mistaken_for_a_part_of_the_key():
    assert KeyedRandom(1, (2,)).integer() != KeyedRandom(12).integer()
    assert KeyedRandom(1, (2,)).integer() != KeyedRandom(2, (1,)).integer()


def test_neighbouring_streams_are_unrelated_and_fit_in_63_bits():
    numbers = [KeyedRandom(seed, ("round", t)).integer() for seed in range(20) for t in range(50)]
    assert len(set(numbers)) == 1000
    assert all(0 <= number < 2**63 for number in numbers)
    # The mean of 1000 uniform draws from [0, 1) has standard deviation 1/sqrt(12·1000) = 0.0091.
    assert abs(np.mean(numbers) / 2**63 - 0.5) < 0.04
    first = np.array([KeyedRandom(0, (t,)).for_numpy().random() for t in range(1000)])
    assert abs(np.corrcoef(first[:-1], first[1:])[0, 1]) < 0.1


def test_global_random_states_are_untouched():
    before_python, before_torch = random.getstate(), torch.get_rng_state()
    before_numpy = np.random.get_state()  # noqa: NPY002
    stream = KeyedRandom(3, ("init",))
    stream.for_numpy().normal(size=10)
    torch.randn(10, generator=stream.for_torch())
    after_numpy = np.random.get_state()  # noqa: NPY002
    assert random.getstate() == before_python
    assert before_numpy[0] == after_numpy[0]
    np.testing.assert_array_equal(before_numpy[1], after_numpy[1])
    assert before_numpy[2:] == after_numpy[2:]
    assert torch.equal(torch.get_rng_state(), before_torch)
