"""Stage I on the server: who is clean, who is noisy, and how sure one can be."""

import dataclasses
import json
import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from fedsir.stages.split import ClientSplit, Evidence, OffDiagonal, split_clients, two_group_evidence

NAN = math.nan


def told(**means: float) -> dict[str, OffDiagonal]:
    """Return clients with these means; the energy follows the mean, as it does in practice."""
    return {client: OffDiagonal(mean, mean**2 + 0.01, 10) for client, mean in means.items()}


TWO_GROUPS = told(a=0.30, b=0.72, c=0.33, d=0.70, e=0.35, f=0.68, g=0.71, h=0.31, i=0.74, j=0.69)


def test_the_group_of_lower_mean_is_clean() -> None:
    split = split_clients(TWO_GROUPS)
    assert split.clean == ("a", "c", "e", "h")
    assert split.noisy == ("b", "d", "f", "g", "i", "j")
    assert split.has_two_groups
    assert split.not_assessed == {}
    assert split.statistics["b"] == (0.72, 0.72**2 + 0.01)


def test_every_assessed_client_has_a_posterior() -> None:
    split = split_clients(TWO_GROUPS | {"x": OffDiagonal(NAN, NAN, 1)})
    assert set(split.posterior_noisy) == set(TWO_GROUPS)
    assert all(split.posterior_noisy[client] < 0.01 for client in "aceh")
    assert all(split.posterior_noisy[client] > 0.99 for client in "bdfgij")


def test_the_smaller_group_may_be_the_noisy_one() -> None:
    split = split_clients(told(a=0.30, b=0.31, c=0.32, d=0.29, e=0.33, f=0.80, g=0.82))
    assert split.noisy == ("f", "g")


def test_clients_that_could_not_be_assessed_are_neither_clean_nor_noisy() -> None:
    clients = TWO_GROUPS | {"one": OffDiagonal(NAN, NAN, 1), "odd": OffDiagonal(NAN, 0.1, 5)}
    split = split_clients(clients, missing={"gone": "dropped out"})
    assert split.not_assessed["gone"] == "dropped out"
    assert split.not_assessed["one"] == "only 1 usable class(es); two are needed"
    assert split.not_assessed["odd"] == "its class similarities are not finite"
    assert split.untrusted == (*split.noisy, "gone", "one", "odd")
    assert not set(split.not_assessed) & {*split.clean, *split.noisy}
    assert split.clean == ("a", "c", "e", "h")  # the others are judged as if these were not there
    assert "gone" not in split.statistics


@pytest.mark.parametrize("how", ["always", "auto"])
def test_identical_clients_are_all_clean(how: str) -> None:
    split = split_clients(told(a=0.5, b=0.5, c=0.5), how)  # type: ignore[arg-type]
    assert split.clean == ("a", "b", "c")
    assert split.noisy == ()
    assert split.posterior_noisy == {"a": 0.0, "b": 0.0, "c": 0.0}
    assert split.evidence is None
    assert not split.has_two_groups


def test_equal_means_accuse_nobody_even_if_energies_differ() -> None:
    """The lower mean says who is clean; where means are equal, nothing does."""
    split = split_clients({"a": OffDiagonal(0.5, 0.3, 5), "b": OffDiagonal(0.5, 0.4, 5), "c": OffDiagonal(0.5, 0.3, 5)})
    assert split.clean == ("a", "b", "c")
    assert split.evidence is None


def test_few_clients() -> None:
    for means, clean, noisy in (({}, (), ()), ({"a": 0.9}, ("a",), ()), ({"a": 0.7, "b": 0.3}, ("b",), ("a",))):
        split = split_clients(told(**means))
        assert (split.clean, split.noisy, split.evidence is None) == (clean, noisy, len(means) < 2)
    assert split_clients({}, missing={"a": "died"}).untrusted == ("a",)


def test_auto_finds_two_clear_groups() -> None:
    split = split_clients(TWO_GROUPS, "auto")
    assert split.two_groups == "found"
    assert dataclasses.replace(split, is_forced=True) == split_clients(TWO_GROUPS, "always")
    assert split.evidence is not None
    assert split.evidence.is_convincing
    assert split.evidence.bic_gain > 0
    assert split.evidence.p_value < 0.01
    assert split.evidence.separation > 4


def test_auto_accuses_nobody_in_one_group() -> None:
    means = {str(k): float(m) for k, m in enumerate(np.random.default_rng(5).normal(0.4, 0.02, 10))}
    forced, careful = split_clients(told(**means)), split_clients(told(**means), "auto")
    assert forced.noisy  # a mixture of two always finds two
    assert (forced.two_groups, careful.two_groups) == ("asked for", "not found")
    assert careful.noisy == ()
    assert careful.clean == tuple(means)
    assert not careful.has_two_groups
    assert careful.evidence is not None
    assert not careful.evidence.is_convincing
    assert careful.posterior_noisy == forced.posterior_noisy  # what the mixture said stays on record


def test_auto_still_leaves_out_who_was_not_assessed() -> None:
    means = {str(k): float(m) for k, m in enumerate(np.random.default_rng(5).normal(0.4, 0.02, 10))}
    split = split_clients(told(**means) | {"x": OffDiagonal(NAN, NAN, 0)}, "auto")
    assert (split.noisy, split.untrusted) == ((), ("x",))


@pytest.mark.parametrize("n_clients", [5, 10, 20])
def test_evidence_rarely_raises_a_false_alarm(n_clients: int) -> None:
    """Of federations with ONE group of clients, fewer than one in ten is called two groups."""
    random = np.random.default_rng(n_clients)
    shape = (30, n_clients)
    draws = {
        "gaussian": random.normal(0.4, 0.03, shape),
        "skewed": 0.3 + 0.02 * random.gamma(4.0, 1.0, shape),
        "heavy tails": 0.4 + 0.02 * random.standard_t(4, shape),
    }
    for name, federations in draws.items():
        alarms = np.mean([two_group_evidence(means, simulations=500).is_convincing for means in federations])
        assert alarms < 0.10, name


def test_evidence_sees_groups_that_are_far_apart() -> None:
    random = np.random.default_rng(0)
    federations = [np.concatenate([random.normal(0.35, 0.02, 4), random.normal(0.65, 0.04, 6)]) for _ in range(20)]
    assert np.mean([two_group_evidence(means, simulations=500).is_convincing for means in federations]) > 0.9


def test_evidence_by_hand() -> None:
    evidence = two_group_evidence(np.array([0.0, 2.0, 10.0, 12.0]))
    # Groups (0, 2) and (10, 12): means 1 and 11; within-group scatter is 4 of 104, so the spread is √(4 / 4) = 1.
    assert evidence.separation == pytest.approx(10.0)
    assert 0 < evidence.p_value <= 1


def test_a_split_survives_json() -> None:
    clients = TWO_GROUPS | {"x": OffDiagonal(0.1, 0.2, 1)}
    split = split_clients(clients, missing={"y": "failed"})
    tree = json.loads(json.dumps(dataclasses.asdict(split)))
    assert ClientSplit.from_tree(tree) == split
    older = tree | {"noisy": [*tree["noisy"], "y", "x"]}  # the not assessed were among the noisy
    assert ClientSplit.from_tree(older) == split
    alone = split_clients(told(a=0.4))
    assert ClientSplit.from_tree(dataclasses.asdict(alone)) == alone
    assert isinstance(ClientSplit.from_tree(tree).evidence, Evidence)


# A mixture takes a tenth of a second to fit: few examples, and no search for a smaller one after a failure.
A_FEW = settings(max_examples=12, phases=[Phase.explicit, Phase.generate])
MEANS = st.lists(st.integers(1, 999).map(lambda n: n / 1000), min_size=2, max_size=8, unique=True)


@A_FEW
@given(means=MEANS, data=st.data())
def test_the_order_of_the_clients_does_not_matter(means: list[float], data: st.DataObject) -> None:
    clients = told(**{f"k{i}": mean for i, mean in enumerate(means)})
    shuffled = dict(data.draw(st.permutations(list(clients.items()))))
    one, other = split_clients(clients), split_clients(shuffled)
    assert set(one.clean) == set(other.clean)
    assert set(one.noisy) == set(other.noisy)
    assert one.evidence == other.evidence
    assert other.clean == tuple(client for client in shuffled if client in other.clean)


@A_FEW
@given(means=MEANS, exponents=st.tuples(st.integers(-10, 10), st.integers(-10, 10)), shift=st.integers(-3, 3))
def test_scale_and_shift_do_not_matter(means: list[float], exponents: tuple[int, int], shift: int) -> None:
    clients = {f"k{i}": OffDiagonal(mean, mean**2, 5) for i, mean in enumerate(means)}
    a, b = (2.0**e for e in exponents)
    scaled = {k: OffDiagonal(a * (s.mean + shift), b * s.energy, 5) for k, s in clients.items()}
    one, other = split_clients(clients), split_clients(scaled)
    assert other.evidence is not None
    assert one.evidence is not None
    assert other.evidence.separation == pytest.approx(one.evidence.separation, rel=1e-6)
    assert (one.clean, one.noisy) == (other.clean, other.noisy)


# ---------------------------------------------------------------- many clients


def test_ten_thousand_clients_are_split_right_in_little_memory() -> None:
    random = np.random.default_rng(0)
    means = np.where(np.arange(10_000) < 7_000, 0.8, 0.5) + 0.02 * random.standard_normal(10_000)
    many = {str(k): OffDiagonal(float(mean), float(mean**2), 10) for k, mean in enumerate(means)}
    tracemalloc.start()
    split = split_clients(many, "auto")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert split.noisy == tuple(str(k) for k in range(7_000))
    assert split.evidence is not None
    assert split.evidence.is_convincing
    assert peak < 100e6  # two thousand simulated federations of this size would be 160 MB in one array


def test_simulating_piece_by_piece_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    means = np.random.default_rng(3).random(13)
    together = two_group_evidence(means)
    monkeypatch.setattr("fedsir.stages.split.SIMULATED_AT_ONCE", 100)  # seven federations at a time
    assert two_group_evidence(means) == together
    monkeypatch.setattr("fedsir.stages.split.SIMULATED_AT_ONCE", 1)
    assert two_group_evidence(means, simulations=5) == two_group_evidence(means, simulations=5)
