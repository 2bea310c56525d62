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
    here = {
        "machine": platform.machine(),
        "torch": torch.__version__,
        "instructions": torch.backends.cpu.get_cpu_capability(),
    }
    if here != RECORDED["platform"]:
        pytest.skip(f"the hashes are of {RECORDED['platform']}, and this is {here}")
    assert straight_run(method, **over).result["model_sha256"] == RECORDED["model_sha256"][method][how]
