"""A method whose needs the data cannot meet says so before anything is trained, by name and with what to set."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract_checks import check_unharmed
from fedsir.data.source import Source
from fedsir.engines.federation import EngineFederation
from fedsir.errors import MethodError
from fedsir.methods.registry import known_methods
from fedsir.runs.config import parse_config
from fedsir.runs.estimate import plan_run

METHODS = sorted(known_methods())
Runner = Callable[..., Any]
Deal = Callable[..., Any]

# Methods that cannot do without it on at least one client.
NEED_TWO_CLASSES = {"fedsir", "pruning"}
NEED_THREE_SAMPLES = {"fedcorr"}


def one_class_each(digits: Source) -> dict[str, list[int]]:
    return {f"only {c}": np.flatnonzero(digits.train_labels == c)[:12].tolist() for c in range(10)}


def two_samples_each(digits: Source) -> dict[str, list[int]]:
    zeros, ones = (np.flatnonzero(digits.train_labels == c)[:5].tolist() for c in (0, 1))
    return {f"{a} and {b}": [a, b] for a, b in zip(zeros, ones, strict=True)}


def refusal(run: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the one line with which a run is refused before anybody is asked for anything."""

    def ask(*_: Any, **__: Any) -> None:
        pytest.fail("clients were set to work first")

    monkeypatch.setattr(EngineFederation, "ask", ask)
    with pytest.raises(MethodError) as problem:
        run()
    message = str(problem.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("few", "needed_by", "words"),
    [
        (one_class_each, NEED_TWO_CLASSES, ("no client clean", "two classes", "data.partition", "data.alpha")),
        (two_samples_each, NEED_THREE_SAMPLES, ("no client", "three samples", "data.n_clients")),
    ],
    ids=["one class", "two samples"],
)
def test_every_client_has_too_few_for_some_methods(
    few: Callable[[Source], dict[str, list[int]]],
    needed_by: set[str],
    words: tuple[str, ...],
    method: str,
    run_tiny: Runner,
    digits: Source,
    deal: Deal,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = few(digits)
    if method not in needed_by:
        check_unharmed(run_tiny(method, federation=deal(rows)))
        return
    message = refusal(lambda: run_tiny(method, federation=deal(rows)), monkeypatch)
    for word in (method, *words, "fedavg"):
        assert word in message


@pytest.mark.parametrize("method", sorted(NEED_TWO_CLASSES | NEED_THREE_SAMPLES))
def test_a_plan_is_refused_as_the_run_would_be(
    method: str, digits: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = np.repeat([0, 1], 2) if method in NEED_THREE_SAMPLES else np.repeat([0, 1], 8)
    clients = np.array([f"site {i}" for i in (range(4) if len(labels) == 4 else labels)])
    # Twice each, once to test with.
    np.savez(
        tmp_path / "own.npz",
        images=np.tile(digits.images[: len(labels), 0], (2, 1, 1)),
        labels=np.tile(labels, 2),
        clients=np.tile(clients, 2),
        split=np.repeat(["train", "test"], len(labels)),
    )
    config = parse_config({"data": {"dataset": str(tmp_path / "own.npz")}, "method": {"name": method}})
    assert method in refusal(lambda: plan_run(config, workers=1), monkeypatch)


@pytest.mark.parametrize("method", sorted(NEED_TWO_CLASSES))
def test_when_everybody_drops_out_of_stage_one_it_is_not_their_classes(method: str, run_tiny: Runner) -> None:
    with pytest.raises(MethodError, match=rf"Stage I of {method}.*client 0: dropped out\)\. Lower dropout, or use a"):
        run_tiny(method, dropout=0.9999)


def test_fedcorr_says_why_nobody_was_assessed(run_tiny: Runner) -> None:
    with pytest.raises(MethodError, match=r"Round 1: fedcorr .*answered \(client \d: dropped out\); .*lower dropout"):
        run_tiny("fedcorr", dropout=0.9999)
    with pytest.raises(MethodError, match=r"Round 1: fedcorr .*answered \(client \d: model.*not finite\)"):
        run_tiny("fedcorr", method={"lr": 1e30})
