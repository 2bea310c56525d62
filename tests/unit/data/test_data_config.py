import pytest
from pydantic import ValidationError

from fedsir.data.config import DataConfig


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("alpha", 0),
        ("alpha", float("nan")),
        ("alpha", float("inf")),
        ("noise_rate", 1.5),
        ("noise_rate", -0.1),
        ("noise_rate", float("nan")),
        ("noise_rate", True),
        ("noise_rate", "0.1-"),
        ("noise_rate", [0.1]),
        ("noise_rate", [0.9, 0.1]),
        ("noise_rate", [0.5, 0.5]),
        ("noise_rate", [0.1, 0.5, 0.9]),
        ("n_clients", 0),
        ("n_clients", 10**10),
        ("min_samples", 0),
        ("n_train", 0),
        ("partition", "random"),
        ("noisy_clients", -1),
        ("noisy_clients", True),
        ("noisy_clients", []),
        ("noisy_clients", ["3", "3"]),
        ("noisy_clients", 2.5),
        ("dataset", ""),
        ("image_size", 7),
        ("image_size", True),
        ("image_size", 10**5),
        ("image_size", "24"),
        ("image_size", [24]),
        ("image_size", [24, 1.5]),
        ("image_size", {}),
    ],
)
def test_a_bad_value_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(ValidationError) as caught:
        DataConfig(**{field: value})
    assert caught.value.errors()[0]["loc"][0] == field


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(ValidationError, match="alhpa"):
        DataConfig(alhpa=1.0)


@pytest.mark.parametrize(
    ("value", "parsed"),
    [
        ("cover", "cover"),
        ("all", "all"),
        ("3", 3),
        (3, 3),
        ("3,4", ("3", "4")),
        ("3,", ("3",)),
        ("berlin", ("berlin",)),
        ("são paulo, paris", ("são paulo", "paris")),
        (["3"], ("3",)),
        ([3, "x"], ("3", "x")),
    ],
)
def test_noisy_clients_are_a_word_a_count_or_names(value: object, parsed: object) -> None:
    assert DataConfig(noisy_clients=value).noisy_clients == parsed


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"noise": "matrix"}, "needs data.transition"),
        ({"transition": [[1.0, 0.0], [0.0, 1.0]]}, "only with noise = 'matrix'"),
        ({"noise": "file"}, "needs data.labels_file"),
        ({"labels_file": "x.npy"}, "only with noise = 'file'"),
        ({"noise": "file", "labels_file": "x.npy", "noise_rate": 0.2}, "noise_rate = 0.2 is not read"),
        ({"noise": "none", "noise_rate": 0.2}, "drop noise, or set the rate to 0"),
        ({"image_size": 16}, "digits has one size already"),
        ({"noise": "file", "labels_file": "x.npy", "noise_rate": "0-1"}, "noise_rate = 0-1 is not read"),
        ({"noise": "pair", "noise_draw": "authors"}, "symmetric noise only"),
        ({"noise_rate": [0.1, 0.9], "noise_draw": "authors"}, "one noise rate for all noisy clients, not 0.1-0.9"),
        ({"noise": "matrix", "transition": [[0.5, 0.4], [0, 1]]}, "row 0 sums to 0.9"),
        ({"noise": "matrix", "transition": [[1.0], [0.5, 0.5]]}, "must be square"),
        ({"noise": "matrix", "transition": [[1.0, 0.0], [1.5, -0.5]]}, "row 1 has an entry"),
        ({"noise": "matrix", "transition": [[float("nan"), 1.0], [0.0, 1.0]]}, "row 0 has an entry"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, object], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        DataConfig(**settings)


@pytest.mark.parametrize(
    ("value", "parsed"),
    [(0, 0.0), ("0.4", 0.4), ("1e-3", 0.001), ("0.1-0.9", (0.1, 0.9)), ([0, 1], (0.0, 1.0)), ((0.2, 0.4), (0.2, 0.4))],
)
def test_a_noise_rate_is_a_share_or_a_range(value: object, parsed: object) -> None:
    config = DataConfig(noise_rate=value)
    assert config.noise_rate == parsed
    assert DataConfig.model_validate(config.model_dump(mode="json")) == config


def test_a_resolved_config_reads_back_the_same() -> None:
    config = DataConfig(noise="matrix", transition=[[0.5, 0.5], [0.25, 0.75]], noisy_clients="1,2")
    assert DataConfig.model_validate(config.model_dump(mode="json")) == config


def test_every_field_is_described() -> None:
    assert [name for name, field in DataConfig.model_fields.items() if not field.description] == []


@pytest.mark.parametrize(
    ("settings", "adds_noise"),
    [
        ({}, False),
        ({"noise_rate": 0.1}, True),
        ({"noise_rate": [0, 0.5]}, True),
        ({"noise": "none"}, False),
        ({"noise_rate": 0.1, "noisy_clients": 0}, False),
        ({"noise_rate": 0.1, "noisy_clients": "none"}, False),
        ({"noise": "matrix", "transition": [[0, 1], [1, 0]]}, True),
    ],
)
def test_adds_noise(settings: dict[str, object], adds_noise: bool) -> None:
    assert DataConfig(**settings).adds_noise is adds_noise
