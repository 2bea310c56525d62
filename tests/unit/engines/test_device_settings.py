"""torch's switches for a device, and that workers can be forked before CUDA is started."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch

from fedsir.engines import device_settings, local

# A process that asks CUDA anything can no longer fork workers that use it.
PRELOAD = """
import torch

asked = []
for name in ("is_available", "device_count", "init", "_lazy_init", "current_device", "get_device_properties"):
    setattr(torch.cuda, name, lambda *_, name=name, **__: asked.append(name) or 0)
import importlib
for module in {modules}:
    importlib.import_module(module)
import fedsir.engines.device_settings
fedsir.engines.device_settings.prepare("cuda")
assert not asked, asked
torch.cuda.is_available()
assert asked == ["is_available"]
"""


@pytest.fixture
def _flags_kept() -> Iterator[None]:
    names = ("allow_tf32", "benchmark", "deterministic")
    before = {name: getattr(torch.backends.cudnn, name) for name in names}
    yield
    for name, value in before.items():
        setattr(torch.backends.cudnn, name, value)


@pytest.mark.usefixtures("_flags_kept")
def test_cuda_computes_in_full_float32_without_races() -> None:
    cudnn = torch.backends.cudnn
    cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic = True, True, False
    for untouched in ("cpu", "mps"):
        device_settings.prepare(untouched)
        assert (cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic) == (True, True, False)
    device_settings.prepare("cuda:1")
    assert (cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic) == (False, False, True)
    assert not torch.backends.cuda.matmul.allow_tf32
    assert torch.get_num_threads() == 1


def test_workers_are_forked_except_for_mps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multiprocessing.get_all_start_methods", lambda: ["spawn", "fork", "forkserver"])
    started = [local.start_method(device).get_start_method() for device in ("cpu", "cuda", "cuda:1", "mps")]
    assert started == ["forkserver", "forkserver", "forkserver", "spawn"]


def test_loading_what_workers_share_asks_cuda_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    preloaded: list[str] = []
    context = local.start_method("cuda")
    monkeypatch.setattr(type(context), "set_forkserver_preload", lambda _, modules: preloaded.extend(modules))
    local.start_method("cuda")
    assert "fedsir.engines.client_host" in preloaded
    done = subprocess.run(
        [sys.executable, "-c", PRELOAD.format(modules=preloaded)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_long_path_for_temporary_files_leaves_no_room_for_the_fork_servers_socket(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("multiprocessing.get_all_start_methods", lambda: ["spawn", "fork", "forkserver"])
    started = []
    for length in (75, 76):  # with /pymp-12345678/listener-12345678 that is 107 bytes, and one too many
        monkeypatch.setattr("tempfile.gettempdir", lambda length=length: "/" + "t" * (length - 1))
        started.append(local.start_method("cpu").get_start_method())
    assert started == ["forkserver", "spawn"]
