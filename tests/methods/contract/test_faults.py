"""Clients that fail, drop out or are not asked are left out, and the run goes on."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from contract_checks import IN_PART, check_finished, let_fail
from fedsir.engines.base import Call

Runner = Callable[..., Any]


def test_a_client_that_fails_mid_round_is_left_out(
    method: str, run_tiny: Runner, straight_run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = straight_run(method)
    split = straight.result
    groups = [split["clean_clients"], split["noisy_clients"]] if split["clean_clients"] else [list("01234")]
    asked = [[k for k in group if k in straight.lines[1]["bytes_up_by_client"]] for group in groups]
    victim = max(asked, key=len)[-1]  # whose group can do without it
    let_fail(monkeypatch, lambda call: (call.client, call.round) == (victim, 1))
    run = run_tiny(method)
    check_finished(run)
    assert run.lines[1]["failures"] == {victim: "MemoryError: no room"}
    assert run.lines[2]["failures"] == {}
    assert victim not in run.lines[1]["bytes_up_by_client"]
    assert victim in run.lines[2]["bytes_up_by_client"]
    assert run.result["model_sha256"] != split["model_sha256"]


def test_a_client_that_fails_after_it_has_answered_is_left_out(
    method: str, run_tiny: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Call] = []
    doomed: Call | None = None

    def is_doomed(call: Call) -> bool:
        asked.append(call)
        return doomed is not None and call == replace(doomed, own=call.own)

    let_fail(monkeypatch, is_doomed)
    run_tiny(method, rounds=3)  # FedNoRo and FedELC ask twice in round 2
    tasks: dict[tuple[int, str], list[Call]] = {}
    for call in asked:
        tasks.setdefault((call.round, call.client), []).append(call)
    several = [calls for calls in tasks.values() if len(calls) > 1]
    if not several:
        pytest.skip("one task per client and round")
    doomed = several[0][-1]
    run = run_tiny(method, rounds=3)
    check_finished(run)
    t = doomed.round
    assert run.lines[t]["failures"] == {doomed.client: "MemoryError: no room"}
    assert doomed.client in run.lines[t]["bytes_up_by_client"]  # its first answer
    assert run.lines[t + 1]["failures"] == {}


def test_partial_participation_and_drop_outs(method: str, straight_run: Runner) -> None:
    run = straight_run(method, **IN_PART)
    check_finished(run)
    drawn = [tuple(line["participants"]) for line in run.lines[1:]]
    assert all(len(participants) == 3 for participants in drawn)
    assert len(set(drawn)) > 1
    for line in run.lines[1:]:
        answered = set(line["bytes_up_by_client"])
        assert answered <= set(line["participants"])
        assert answered.isdisjoint(line["failures"])
    assert any("dropped out" in line["failures"].values() for line in run.lines)
