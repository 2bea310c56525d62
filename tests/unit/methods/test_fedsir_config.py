"""FedSIR's settings: two presets, schedules that scale, switches that do not hang together."""

from typing import Any

import pytest
from pydantic import ValidationError

from fedsir.methods.fedsir import FedSIR
from fedsir.methods.fedsir_settings import PAPER, FedSIRConfig, Relabel
from fedsir.runs.config import parse_config


def config(rounds: int = 100, **settings: Any) -> FedSIRConfig:
    return FedSIRConfig.model_validate({"name": "fedsir", **settings}).resolved(rounds)


def method(rounds: int = 100, **settings: Any) -> FedSIR:
    return FedSIR(**settings).resolved(rounds)


# Where code and paper differ (methods.md §4): setting → (authors, paper).
DIVERGENCES = {
    "identify.weight_decay": (5e-2, 2e-2),
    "identify.min_class_samples": (20, 1),
    "identify.features": ("augmented", "plain"),
    "relabel.count_from": ("zero", "one"),
    "relabel.residual": ("after_block", "after_direction"),
    "relabel.weight": ("count_gap_share", "count"),
    "relabel.min_samples": (100, 1),
    "relabel.min_strength": (0.03, 0.0),
    "relabel.spectra_from": ("clean_reference", "own_model"),
    "la.prior": ("given", "corrected"),
    "kd.ramp_begin": (2.0, 0.0),
    "kd.ramp_end": (49.0, 0.0),
    "kd.on": ("undecided", "all"),
    "daagg.distance": ("normalised", "raw"),
}


def value_of(settings: FedSIRConfig, key: str) -> Any:
    group, name = key.split(".")
    return getattr(getattr(settings, group), name)


@pytest.mark.parametrize("key", DIVERGENCES)
def test_each_preset_sets_every_field_where_code_and_paper_differ(key: str) -> None:
    authors, paper = DIVERGENCES[key]
    assert value_of(config(), key) == authors
    assert value_of(config(preset="authors"), key) == authors
    assert value_of(config(preset="paper"), key) == paper


def test_the_presets_differ_nowhere_else() -> None:
    assert {f"{group}.{name}" for group, fields in PAPER.items() for name in fields} == set(DIVERGENCES)
    authors, paper = config(preset="authors").model_dump(), config(preset="paper").model_dump()
    differing = {
        f"{group}.{name}"
        for group in ("identify", "relabel", "la", "kd", "daagg")
        for name in authors[group]
        if authors[group][name] != paper[group][name]
    }
    assert differing == set(DIVERGENCES)


def test_what_is_said_explicitly_wins_over_the_preset() -> None:
    chosen = config(preset="paper", relabel={"weight": "count_gap_share", "every": 7}, kd={"ramp_end": 30})
    assert chosen.relabel.weight == "count_gap_share"
    assert chosen.relabel.every == 7
    assert chosen.relabel.residual == "after_direction"  # the rest of the group stays the paper's
    assert (chosen.kd.ramp_begin, chosen.kd.ramp_end) == (0.0, 30)
    assert chosen.daagg.distance == "raw"


def test_what_is_said_in_python_wins_over_the_preset_field_by_field_too() -> None:
    chosen = FedSIRConfig(name="fedsir", preset="paper", relabel=Relabel(every=7))
    assert chosen.relabel.every == 7
    assert chosen.relabel.residual == "after_direction"


def test_resolved_settings_read_back_as_themselves() -> None:
    for preset in ("authors", "paper"):
        resolved = config(rounds=30, preset=preset)
        again = FedSIRConfig.model_validate(resolved.model_dump(mode="json"))
        assert again.resolved(500) == resolved  # nothing is left open that another length could change


@pytest.mark.parametrize(
    ("rounds", "every", "begin", "end"), [(100, 20, 2.0, 49.0), (20, 4, 0.4, 9.8), (3, 1, 0.06, 1.47)]
)
def test_schedules_scale_with_the_rounds(rounds: int, every: int, begin: float, end: float) -> None:
    scaled = config(rounds)
    assert scaled.relabel.every == every
    assert (scaled.kd.ramp_begin, scaled.kd.ramp_end) == pytest.approx((begin, end))


def test_explicit_schedules_stay() -> None:
    chosen = config(1000, relabel={"every": 3}, kd={"ramp_begin": 0, "ramp_end": 5})
    assert (chosen.relabel.every, chosen.kd.ramp_begin, chosen.kd.ramp_end) == (3, 0, 5)


def test_a_run_resolves_the_schedule() -> None:
    resolved = parse_config({"rounds": 50, "method": {"name": "fedsir"}})
    assert isinstance(resolved.method, FedSIRConfig)
    assert resolved.method.relabel.every == 10


@pytest.mark.parametrize(
    "wrong",
    [
        {"relabel": {"evry": 3}},
        {"relabel": {"every": 0}},
        {"relabel": {"rule": "majority"}},
        {"kd": {"weight": 1.5}},
        {"kd": {"temperature": 0}},
        {"preset": "mine"},
        {"identify": {"epochs": -1}},
        {"lr": float("nan")},
    ],
)
def test_unknown_and_impossible_settings_are_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        config(**wrong)


# ---------------------------------------------------------------- when it relabels, how much it distils


def test_relabel_rounds_of_the_authors_and_of_the_paper() -> None:
    authors, paper = method(), method(preset="paper")
    # The authors count r from 0 and skip r = 0: r = 20, 40, 60, 80 are our rounds t = r + 1.
    assert [t for t in range(1, 101) if authors.relabels_in(t)] == [21, 41, 61, 81]
    assert [t for t in range(1, 101) if paper.relabels_in(t)] == [20, 40, 60, 80, 100]


def test_relabelling_every_round() -> None:
    assert [t for t in range(1, 5) if method(relabel={"every": 1}).relabels_in(t)] == [2, 3, 4]
    assert [t for t in range(1, 5) if method(relabel={"every": 1, "count_from": "one"}).relabels_in(t)] == [1, 2, 3, 4]


def test_distillation_weight_over_the_rounds() -> None:
    weights = [method().kd_weight(t) for t in (1, 3, 11, 21, 31, 41, 50, 100)]
    assert weights == pytest.approx([0.0013, 0.0013, 0.0064, 0.030, 0.088, 0.167, 0.2, 0.2], abs=6e-4)
    assert [method(preset="paper").kd_weight(t) for t in (1, 50, 100)] == [0.2, 0.2, 0.2]


def test_ablation_switches_are_independent() -> None:
    for switched_off in ("relabel", "la", "kd", "daagg"):
        settings: dict[str, Any] = {switched_off: {"enabled": False}}
        ablated = method(**settings)
        assert any(ablated.relabels_in(t) for t in range(1, 101)) == (switched_off != "relabel")
        assert (ablated.kd_weight(60) > 0) == (switched_off != "kd")
        assert ablated.config.la.enabled == (switched_off != "la")
        assert ablated.config.daagg.enabled == (switched_off != "daagg")
