import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedsir.data import noise
from fedsir.data.config import DataConfig
from fedsir.data.dealing import build_federation
from fedsir.data.federation import FederatedData
from fedsir.data.instance_noise import instance_dependent
from fedsir.data.source import Source, make_source
from fedsir.randomness import KeyedRandom

N_CLASSES = 5
LABELS = st.lists(st.integers(0, N_CLASSES - 1), min_size=1, max_size=80).map(lambda v: np.array(v, np.int64))
RATE = st.floats(0, 1)
SEED = st.integers(0, 2**31)


def small_source() -> Source:
    labels = np.arange(200) % N_CLASSES
    images = np.arange(200 * 64).astype(np.uint8).reshape(200, 1, 8, 8)
    return make_source(
        "small",
        np.concatenate([images, images[:50]]),
        np.concatenate([labels, labels[:50]]),
        tuple("abcde"),
        is_test=np.arange(250) >= 200,
        flip=False,
        crop_padding=1,
        is_benchmark=True,
        confused_with=(1, 0, 2, 4, 3),
    )


SOURCE = small_source()
RATED = st.sampled_from(["symmetric", "pair", "asymmetric", "instance"])
SETTING = st.floats(0.05, 1) | st.tuples(st.floats(0, 0.45), st.floats(0.5, 1))


def dealt(seed: int, noisy: tuple[str, ...], **settings: object) -> FederatedData:
    return build_federation(DataConfig(n_clients=4, min_samples=5, noisy_clients=noisy, **settings), SOURCE, seed=seed)


@given(labels=LABELS, rate=RATE, seed=SEED)
def test_symmetric_noise_is_exact(labels: np.ndarray, rate: float, seed: int) -> None:
    given_labels = noise.symmetric(labels, N_CLASSES, rate, KeyedRandom(seed))
    table = noise.realised_transition(labels, given_labels, N_CLASSES)
    sizes = table.sum(axis=1)
    assert (sizes == np.bincount(labels, minlength=N_CLASSES)).all()
    assert (sizes - table.diagonal()).tolist() == [round(rate * int(n)) for n in sizes]


@given(labels=LABELS, rate=RATE, seed=SEED)
def test_flips_go_to_the_target_only(labels: np.ndarray, rate: float, seed: int) -> None:
    given_labels = noise.flip_to(labels, noise.pair_targets(N_CLASSES), rate, KeyedRandom(seed))
    changed = given_labels != labels
    assert (given_labels[changed] == (labels[changed] + 1) % N_CLASSES).all()
    for c in range(N_CLASSES):
        assert changed[labels == c].sum() == round(rate * int((labels == c).sum()))


@given(labels=LABELS, rows=st.lists(st.integers(0, 9), min_size=25, max_size=25), seed=SEED)
def test_a_matrix_is_realised_within_one_sample(labels: np.ndarray, rows: list[int], seed: int) -> None:
    matrix = np.array(rows, float).reshape(5, 5) + np.eye(5)
    matrix /= matrix.sum(axis=1, keepdims=True)
    table = noise.realised_transition(labels, noise.by_transition(labels, matrix, KeyedRandom(seed)), 5)
    wanted = matrix * np.bincount(labels, minlength=5)[:, None]
    assert np.abs(table - wanted).max() < 1


@given(labels=LABELS, rate=RATE, seed=SEED)
def test_instance_noise_is_close_to_the_rate(labels: np.ndarray, rate: float, seed: int) -> None:
    random, rows = KeyedRandom(seed), np.arange(len(labels))
    given_labels = instance_dependent(
        labels, [rows], {0: rate}, {0: random}, SOURCE.images, rows, SOURCE.preprocessing, N_CLASSES, random
    )
    assert ((given_labels >= 0) & (given_labels < N_CLASSES)).all()
    for c in range(N_CLASSES):
        of_class = labels == c
        n, n_flipped = int(of_class.sum()), int((given_labels[of_class] != c).sum())
        # Rounding, and six standard deviations of a sum of n flip rates, which lie within ±0.1 or so of the rate.
        assert abs(n_flipped - rate * n) < 1 + 0.6 * n**0.5


@given(kind=RATED, rate=SETTING, seed=SEED)
def test_a_client_s_noise_is_its_own(kind: str, rate: float | tuple[float, float], seed: int) -> None:
    alone = dealt(seed, ("2",), noise=kind, noise_rate=rate)
    with_others = dealt(seed, ("3", "2", "0"), noise=kind, noise_rate=rate)
    rows = alone.rows("2")
    assert (alone.given_labels[rows] == with_others.given_labels[rows]).all()
    assert (dealt(seed, ("2",), noise=kind, noise_rate=rate).given_labels == alone.given_labels).all()
    rates = with_others.noise_by_client()
    assert rates is not None and rates["1"] == 0
    for data in (alone, with_others):
        assert ((data.given_labels >= 0) & (data.given_labels < N_CLASSES)).all()


@given(kind=st.sampled_from(["symmetric", "pair"]), low=st.floats(0, 0.45), high=st.floats(0.5, 1), seed=SEED)
def test_every_client_s_rate_lies_in_the_range(kind: str, low: float, high: float, seed: int) -> None:
    data = dealt(seed, ("0", "1", "2", "3"), noise=kind, noise_rate=(low, high))
    rates = data.noise_by_client()
    assert rates is not None
    for client, realised in rates.items():
        rounding = N_CLASSES * 0.5 / data.size_by_client[client]  # half a sample of each class at most
        assert low - rounding <= realised <= high + rounding


@given(
    rate=st.floats(0.01, 1),
    seed=SEED,
    kind=RATED,
    draw=st.sampled_from(["keyed", "authors"]),
)
def test_clean_clients_are_untouched(rate: float, seed: int, kind: str, draw: str) -> None:
    draw = draw if kind == "symmetric" else "keyed"
    config = DataConfig(n_clients=4, min_samples=5, noise=kind, noise_draw=draw, noise_rate=rate, noisy_clients=2)
    data = build_federation(config, SOURCE, seed=seed)
    truth = data.truth
    rates = data.noise_by_client()
    assert rates is not None
    assert set(truth.clean_clients) | set(truth.noisy_clients) == set(data.clients)
    assert len(truth.noisy_clients) <= 2
    assert all(rates[k] == 0 for k in truth.clean_clients)
    assert all(rates[k] > 0 for k in truth.noisy_clients)
    assert (truth.true_labels == SOURCE.train_labels[data.source_index]).all()
    off_diagonal = truth.transition.sum() - np.trace(truth.transition)
    assert off_diagonal == (data.given_labels != truth.true_labels).sum()
