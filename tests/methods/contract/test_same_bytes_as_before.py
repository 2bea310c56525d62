"""A redesign changes no result: every method ends in the model it ended in before, on the same platform."""

import json
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from contract_checks import IN_PART

RECORDED = json.loads(Path(__file__).with_name("model_hashes.json").read_text())


@pytest.mark.parametrize(("how", "over"), [("all", {}), ("in part", IN_PART)], ids=["with all", "in part"])
def test_the_model_is_the_recorded_one(
    how: str, over: dict[str, Any], method: str, straight_run: Callable[..., Any]
) -> None:
    instructions = torch.backends.cpu.get_cpu_capability()  # sums are rounded in another order with wider registers
    known = RECORDED["model_sha256"].get(instructions)
    if known is None or (platform.machine(), torch.__version__) != (RECORDED["machine"], RECORDED["torch"]):
        pytest.skip(f"no hashes recorded for {platform.machine()}, {instructions}, torch {torch.__version__}")
    if method not in known:
        pytest.skip(f"{method} did not exist before")
    assert straight_run(method, **over).result["model_sha256"] == known[method][how]
