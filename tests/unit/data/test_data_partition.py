import numpy as np
import pytest

from fedsir.data.cover import choose_noisy_clients, default_cover_min_samples, greedy_cover
from fedsir.data.naming import natural_order
from fedsir.data.partition import authors_dirichlet, by_column, dirichlet, iid, shards
from fedsir.errors import ConfigError
from fedsir.randomness import KeyedRandom

RANDOM = KeyedRandom(0, ("test",))
# Seed 42 and 10 clients: sizes and clean clients of the published splits (sizes where they are published).
REPLAY = [
    (10, 0.1, [1947, 6226, 1794, 3251, 803, 7558, 8521, 9832, 7025, 3043], (1, 5, 6, 7, 8)),
    (10, 0.5, [4754, 6375, 9614, 3567, 2491, 4171, 5361, 5776, 2465, 5426], (0, 1, 2)),
    (10, 1, [3326, 5260, 5248, 4641, 4768, 6626, 5405, 4896, 4155, 5675], (1, 3, 5)),
    (10, 2, [3614, 5345, 4666, 3848, 3989, 6339, 4734, 5496, 6702, 5267], (0, 4, 8)),
    (100, 0.3, [4659, 4495, 4363, 5978, 5505, 4435, 4773, 4819, 4634, 6339], (0, 1, 2, 3, 4, 8, 9)),
    (100, 0.5, None, (0, 1, 2, 3, 7, 9)),
    (100, 2, None, (0, 1, 2, 3, 4)),
]


@pytest.mark.parametrize(("n_classes", "alpha", "sizes", "clean"), REPLAY)
@pytest.mark.parametrize("order", ["sorted", "interleaved"])
def test_the_published_splits_are_replayed(
    n_classes: int, alpha: float, sizes: list[int] | None, clean: tuple[int, ...], order: str
) -> None:
    classes, per_class = np.arange(n_classes), 50_000 // n_classes
    labels = np.repeat(classes, per_class) if order == "sorted" else np.tile(classes, per_class)
    parts = authors_dirichlet(labels, 10, alpha, seed=42)
    if sizes is not None:
        assert [len(part) for part in parts] == sizes
    counts = np.stack([np.bincount(labels[part], minlength=n_classes) for part in parts])
    threshold = default_cover_min_samples(50_000, n_classes)
    assert threshold == {10: 450, 100: 45}[n_classes]
    assert greedy_cover(counts, threshold) == clean


def test_the_replay_leaves_the_global_generator_alone() -> None:
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    authors_dirichlet(np.repeat(np.arange(3), 20), 4, 0.5, seed=1)
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


def test_the_replay_refuses_what_the_legacy_generator_cannot_do() -> None:
    labels = np.repeat(np.arange(3), 20)
    with pytest.raises(ConfigError, match="seed"):
        authors_dirichlet(labels, 4, 0.5, seed=-1)
    with pytest.raises(ConfigError, match="alpha"):
        authors_dirichlet(labels, 4, 1e-6, seed=0)


def test_too_few_samples_for_min_samples_says_what_to_change() -> None:
    with pytest.raises(ConfigError, match=r"min_samples = 7 .*n_clients = 3.*21.*there are 20"):
        dirichlet(np.arange(20) % 2, 3, 1.0, 7, RANDOM)


def test_a_partition_that_needs_every_sample_gives_all_the_same_size() -> None:
    parts = dirichlet(np.arange(21) % 2, 3, 0.05, 7, RANDOM)
    assert [len(part) for part in parts] == [7, 7, 7]


@pytest.mark.parametrize("alpha", [1e-300, 1e-9, 1e9, 1e308])
def test_extreme_alpha_still_deals_everything(alpha: float) -> None:
    parts = dirichlet(np.arange(400) % 4, 5, alpha, 1, RANDOM)
    assert sorted(np.concatenate(parts).tolist()) == list(range(400))
    if alpha > 1:
        assert max(len(part) for part in parts) < 130  # near 80 each


def test_keyed_dirichlet_of_one_class_does_not_depend_on_another() -> None:
    labels = np.array([0] * 50 + [1] * 50)
    first = dirichlet(labels, 3, 1.0, 1, RANDOM)
    second = dirichlet(labels[:50], 3, 1.0, 1, RANDOM)
    for one, two in zip(first, second, strict=True):
        assert one[one < 50].tolist() == two.tolist()


def test_iid_sizes_differ_by_at_most_one() -> None:
    assert [len(part) for part in iid(np.zeros(11, np.int64), 3, RANDOM)] == [4, 4, 3]
    with pytest.raises(ConfigError, match="n_clients = 12"):
        iid(np.zeros(11, np.int64), 12, RANDOM)


def test_shards_give_few_classes() -> None:
    labels = np.repeat(np.arange(6), 10)
    parts = shards(labels, 3, 2, RANDOM)  # six shards of ten: one class each
    assert [len(np.unique(labels[part])) for part in parts] == [2, 2, 2]
    with pytest.raises(ConfigError, match="shards_per_client = 120"):
        shards(labels, 3, 40, RANDOM)


def test_by_column_lists_clients_as_a_person_would() -> None:
    names, parts = by_column(np.array(["site 10", "site 2", "site 10", "a", "site 2"]))
    assert names == ("a", "site 2", "site 10")
    assert [part.tolist() for part in parts] == [[3], [1, 4], [0, 2]]
    assert natural_order(["10", "9", "b2", "b10", "9"]) == ("9", "10", "b2", "b10")


def test_greedy_cover_by_hand() -> None:
    counts = np.array([[5, 5, 0, 0], [0, 5, 5, 5], [5, 0, 0, 4], [5, 0, 0, 0]])
    # Client 1 covers three classes; then 0, 2 and 3 each add class 0, and the lowest number wins.
    assert greedy_cover(counts, 5) == (0, 1)
    assert greedy_cover(counts, 6) == ()
    assert greedy_cover(np.array([[5, 0], [3, 0]]), 5) == (0,)  # nobody holds class 1: stop


def test_who_is_noisy() -> None:
    names, counts = ("a", "b", "c", "d"), np.array([[5, 5], [5, 0], [0, 5], [1, 1]])

    def choose(choice: object) -> tuple[int, ...]:
        return choose_noisy_clients(choice, names, counts, 5, RANDOM)

    assert choose("cover") == (1, 2, 3)
    assert choose("all") == (0, 1, 2, 3)
    assert choose("none") == ()
    assert choose(("d", "b")) == (1, 3)
    assert len(choose(2)) == 2
    assert choose(2) == choose(2)
    for choice, says in [(5, "only 4 clients"), (("x",), "names 'x'")]:
        with pytest.raises(ConfigError, match=says):
            choose(choice)
    with pytest.raises(ConfigError, match="cover_min_samples"):
        choose_noisy_clients("cover", names, counts, 6, RANDOM)
    with pytest.raises(ConfigError, match="nobody to be noisy"):
        choose_noisy_clients("cover", names[:1], counts[:1], 5, RANDOM)
