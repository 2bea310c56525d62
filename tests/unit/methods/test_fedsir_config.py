"""FedSIR's settings: three presets, schedules that scale, switches that do not hang together."""

from typing import Any

import pytest
from pydantic import ValidationError

from fedsir.methods.fedsir import FedSIR
from fedsir.methods.fedsir_settings import PAPER, FedSIRConfig, Relabel
from fedsir.runs.config import parse_config


def config(rounds: int = 100, **settings: Any) -> FedSIRConfig:
    return FedSIRConfig.model_validate({"name": "fedsir", **settings}).resolved(rounds)


def method(**settings: Any) -> FedSIR:
    return FedSIR(**settings).resolved(100)


# Where code and paper differ (docs/deviations.md): group → setting → (authors, paper).
DIVERGENCES: dict[str, dict[str, tuple[Any, Any]]] = {
    "identify": {"weight_decay": (5e-2, 2e-2), "min_class_samples": (20, 1), "features": ("augmented", "plain")},
    "relabel": {
        "count_from": ("zero", "one"),
        "residual": ("after_block", "after_direction"),
        "weight": ("count_gap_share", "count"),
        "min_samples": (100, 1),
        "min_strength": (0.03, 0.0),
        "spectra_from": ("clean_reference", "own_model"),
    },
    "la": {"prior": ("given", "corrected")},
    "kd": {"ramp_begin": (2.0, 0.0), "ramp_end": (49.0, 0.0), "on": ("undecided", "all")},
    "daagg": {"distance": ("normalised", "raw")},
}


def test_the_presets_differ_where_code_and_paper_do_and_nowhere_else() -> None:
    authors, paper = (config(preset=preset).model_dump() for preset in ("authors", "paper"))
    assert authors == config().model_dump()
    differing = {
        group: {
            name: (value, paper[group][name]) for name, value in authors[group].items() if value != paper[group][name]
        }
        for group in PAPER
    }
    assert differing == DIVERGENCES
    assert {key for key in authors if authors[key] != paper[key]} == {*DIVERGENCES, "preset"}


def test_what_is_said_explicitly_wins_over_the_preset() -> None:
    chosen = config(preset="paper", relabel={"weight": "count_gap_share", "every": 7}, kd={"ramp_end": 30})
    assert (chosen.relabel.weight, chosen.relabel.every) == ("count_gap_share", 7)
    assert chosen.relabel.residual == "after_direction"  # the rest of the group stays the paper's
    assert (chosen.kd.ramp_begin, chosen.kd.ramp_end) == (0.0, 30)
    in_python = FedSIRConfig(name="fedsir", preset="paper", relabel=Relabel(every=7)).relabel
    assert (in_python.every, in_python.residual) == (7, "after_direction")


@pytest.mark.parametrize("preset", ["authors", "paper", "plus"])
def test_resolved_settings_read_back_as_themselves(preset: str) -> None:
    resolved = config(rounds=30, preset=preset)
    again = FedSIRConfig.model_validate(resolved.model_dump(mode="json"))
    assert again.resolved(500) == resolved  # nothing is left open that another length could change


@pytest.mark.parametrize(
    ("rounds", "settings", "every", "begin", "end"),
    [
        (100, {}, 20, 2.0, 49.0),
        (20, {}, 4, 0.4, 9.8),
        (3, {}, 1, 0.06, 1.47),
        (1000, {"relabel": {"every": 3}, "kd": {"ramp_begin": 0, "ramp_end": 5}}, 3, 0, 5),
    ],
)
def test_schedules_scale_with_the_rounds_and_stated_ones_stay(
    rounds: int, settings: dict[str, Any], every: int, begin: float, end: float
) -> None:
    resolved = parse_config({"rounds": rounds, "method": {"name": "fedsir", **settings}}).method
    assert isinstance(resolved, FedSIRConfig)
    assert resolved.relabel.every == every
    assert (resolved.kd.ramp_begin, resolved.kd.ramp_end) == pytest.approx((begin, end))


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
    ],
)
def test_unknown_and_impossible_settings_are_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        config(**wrong)


# ---------------------------------------------------------------- when it relabels, how much it distils


@pytest.mark.parametrize(
    ("settings", "rounds"),
    [
        # The authors count r from 0 and skip r = 0: r = 20, 40, 60, 80 are our rounds t = r + 1.
        ({}, [21, 41, 61, 81]),
        ({"preset": "paper"}, [20, 40, 60, 80, 100]),
        ({"relabel": {"every": 1}}, list(range(2, 101))),
        ({"relabel": {"every": 1, "count_from": "one"}}, list(range(1, 101))),
        ({"relabel": {"enabled": False}}, []),
        ({"kd": {"enabled": False}}, [21, 41, 61, 81]),
    ],
)
def test_rounds_that_relabel(settings: dict[str, Any], rounds: list[int]) -> None:
    assert [t for t in range(1, 101) if method(**settings).relabels_in(t)] == rounds


def test_distillation_weight_over_the_rounds() -> None:
    weights = [method().kd_weight(t) for t in (1, 3, 11, 21, 31, 41, 50, 100)]
    assert weights == pytest.approx([0.0013, 0.0013, 0.0064, 0.030, 0.088, 0.167, 0.2, 0.2], abs=6e-4)
    assert [method(preset="paper").kd_weight(t) for t in (1, 50, 100)] == [0.2, 0.2, 0.2]
    assert method(kd={"enabled": False}).kd_weight(60) == 0.0
    assert method(relabel={"enabled": False}).kd_weight(100) == pytest.approx(0.2)  # switches do not hang together
