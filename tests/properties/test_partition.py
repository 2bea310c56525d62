import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedsir.data.cover import greedy_cover
from fedsir.data.partition import authors_dirichlet, by_column, dirichlet, iid, shards
from fedsir.randomness import KeyedRandom

LABELS = st.lists(st.integers(0, 5), min_size=40, max_size=200).map(lambda values: np.array(values, np.int64))
ALPHA = st.floats(1e-3, 1e3)
SEED = st.integers(0, 2**32 - 1)


def assert_exact_cover(parts: list[np.ndarray], n: int) -> None:
    assert sorted(np.concatenate(parts).tolist()) == list(range(n))  # all of them, and none twice
    assert all(part.dtype == np.int64 and (np.diff(part) > 0).all() for part in parts)


@given(labels=LABELS, n_clients=st.integers(1, 10), alpha=ALPHA, min_samples=st.integers(1, 4), seed=SEED)
def test_dirichlet(labels: np.ndarray, n_clients: int, alpha: float, min_samples: int, seed: int) -> None:
    parts = dirichlet(labels, n_clients, alpha, min_samples, KeyedRandom(seed))
    assert len(parts) == n_clients
    assert_exact_cover(parts, len(labels))
    assert min(len(part) for part in parts) >= min_samples
    again = dirichlet(labels, n_clients, alpha, min_samples, KeyedRandom(seed))
    assert all((one == two).all() for one, two in zip(parts, again, strict=True))


@given(labels=LABELS, n_clients=st.integers(1, 10), alpha=st.floats(0.1, 100), seed=SEED)
def test_authors_dirichlet(labels: np.ndarray, n_clients: int, alpha: float, seed: int) -> None:
    parts = authors_dirichlet(labels, n_clients, alpha, seed)
    assert len(parts) == n_clients
    assert_exact_cover(parts, len(labels))


@given(labels=LABELS, n_clients=st.integers(1, 10), per_client=st.integers(1, 4), seed=SEED)
def test_iid_and_shards(labels: np.ndarray, n_clients: int, per_client: int, seed: int) -> None:
    for parts in (
        iid(labels, n_clients, KeyedRandom(seed)),
        shards(labels, n_clients, per_client, KeyedRandom(seed)),
    ):
        assert len(parts) == n_clients
        assert_exact_cover(parts, len(labels))
        sizes = [len(part) for part in parts]
        assert max(sizes) - min(sizes) <= per_client


@given(clients=st.lists(st.text(min_size=1, max_size=3).filter(lambda s: "\0" not in s), min_size=1, max_size=40))
def test_by_column(clients: list[str]) -> None:
    names, parts = by_column(np.array(clients))
    assert set(names) == set(clients)
    assert_exact_cover(parts, len(clients))
    for name, part in zip(names, parts, strict=True):
        assert {clients[i] for i in part} == {name}


@given(
    counts=st.lists(st.lists(st.integers(0, 9), min_size=4, max_size=4), min_size=1, max_size=6),
    threshold=st.integers(1, 9),
)
def test_cover_covers_what_can_be_covered(counts: list[list[int]], threshold: int) -> None:
    table = np.array(counts)
    clean = list(greedy_cover(table, threshold))
    assert ((table[clean] >= threshold).any(axis=0) == (table >= threshold).any(axis=0)).all()
    for k in clean:  # nobody is chosen for nothing
        assert (table[k] >= threshold).any()
