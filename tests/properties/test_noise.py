import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedsir.data import noise
from fedsir.data.config import DataConfig
from fedsir.data.dealing import build_federation
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
    )


SOURCE = small_source()


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


@given(
    rate=st.floats(0.01, 1),
    seed=SEED,
    kind=st.sampled_from(["symmetric", "pair"]),
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
