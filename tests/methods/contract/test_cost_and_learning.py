"""The bytes that are counted are those that travel, and something is learned for them."""

from collections.abc import Callable
from typing import Any

import pytest

from fedsir.engines.base import Answer, AnyCall, Call
from fedsir.engines.client_host import ClientHost
from fedsir.engines.wire import decode
from fedsir.methods.registry import method_class

Runner = Callable[..., Any]


def test_bytes_add_up(method: str, run_tiny: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, dict[tuple[int, str], int]] = {"bytes_up": {}, "bytes_down": {}}
    original = ClientHost.answer

    def weighed(self: ClientHost, call: AnyCall, common: bytes, state: bytes) -> Answer:
        answer = original(self, call, common, state)
        if isinstance(call, Call):
            down = len(common) + (len(call.own) if decode(call.own) else 0)
            for way, n in (("bytes_up", len(answer.reply)), ("bytes_down", down)):
                key = (call.round, call.client)
                seen[way][key] = seen[way].get(key, 0) + n
        return answer

    monkeypatch.setattr(ClientHost, "answer", weighed)
    run = run_tiny(method)
    n_model_bytes = (run.folder / "model.safetensors").stat().st_size
    for way in ("bytes_up", "bytes_down"):
        for line in run.lines:
            assert line[way] == sum(line[f"{way}_by_client"].values())
            assert all(isinstance(n, int) and n > 0 for n in line[f"{way}_by_client"].values())
        told = {(line["round"], k): n for line in run.lines for k, n in line[f"{way}_by_client"].items()}
        assert told == seen[way]
        assert run.result[way] == sum(line[way] for line in run.lines)
        # Nobody can average without at least one model's worth of traffic per round; those who keep their own models
        # (all of which are in the file) send answers.
        least = 5 * 24 * 10 * 4 if method_class(method.split()[0]).is_personal else n_model_bytes / 2
        assert all(line[way] > least for line in run.lines[1:])


# The answers of a model that has seen one round are no labels to learn from.
TO_LEARN: dict[str, dict[str, Any]] = {
    "rofl": {"pseudo_label_from": 3},
    "fedned": {"threshold": 1.2, "confidence": 0.5},
    "rhfl": {"pretrain_epochs": 6},
}


def test_it_learns(method: str, run_tiny: Runner) -> None:
    run = run_tiny(
        method,
        rounds=3,
        evaluate_every=3,
        data={"n_train": 400, "n_test": None, "noise_rate": 0.0},
        method={"epochs": 3, "lr": 0.005, **TO_LEARN.get(method, {})},
    )
    assert run.result["accuracy"] > 0.6  # chance is 0.1
