"""torch's switches for a device, and how workers are started for it."""

from collections.abc import Iterator

import pytest
import torch

from fedsir.engines import device_settings, local

cudnn = torch.backends.cudnn


def switches() -> tuple[bool, bool, bool]:
    return cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic


@pytest.fixture(autouse=True)
def _kept() -> Iterator[None]:
    before = switches()
    yield
    cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic = before


def test_cuda_computes_in_full_float32_without_races_and_only_inside_the_block() -> None:
    cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic = True, True, False
    with device_settings.prepared("mps"):
        assert switches() == (True, True, False)
    with device_settings.prepared("cuda:1"):
        assert switches() == (False, False, True)
        assert not torch.backends.cuda.matmul.allow_tf32
    assert switches() == (True, True, False)


@pytest.mark.parametrize(
    ("device", "length", "expected"),
    [
        ("cpu", 75, "forkserver"),  # with /pymp-12345678/listener-12345678 that is 107 bytes
        ("cpu", 76, "spawn"),  # one too many for the fork server's socket
        ("cuda:1", 20, "forkserver"),
        ("mps", 20, "spawn"),
    ],
)
def test_how_workers_are_started(device: str, length: int, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multiprocessing.get_all_start_methods", lambda: ["spawn", "fork", "forkserver"])
    monkeypatch.setattr("tempfile.gettempdir", lambda: "/" + "t" * (length - 1))
    assert local.start_method(device).get_start_method() == expected
