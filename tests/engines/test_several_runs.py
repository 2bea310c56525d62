"""Several runs on one machine: no more processes compute than there are cores, and images are in memory once."""

import gc
import signal
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fedsir.data.federation import FederatedData
from fedsir.data.source import load_source
from fedsir.engines import client_host, user_folder
from fedsir.engines.client_host import Call
from fedsir.engines.core_slots import CoreSlots
from fedsir.engines.local import InProcessEngine, _serve
from fedsir.engines.shared_images import shared_files
from fedsir.engines.wire import encode
from fedsir.experiment.progress import Silent
from fedsir.experiment.recipes import resolve
from fedsir.experiment.runner import Where, run_experiment

if not user_folder.HAS_LOCKS:
    pytest.skip("needs locks on open files", allow_module_level=True)

Opened = Callable[..., tuple[Any, Any, Any]]
CLIENTS = ("a", "b", "c", "d", "e")
TINY = {"rounds": 2, "data": {"n_train": 60, "n_test": 20, "n_clients": 3}, "method": {"name": "fedavg"}}


@pytest.fixture
def meeting_place(tmp_path: Path) -> str:
    folder = tmp_path / "meeting"
    folder.mkdir()
    return str(folder)


@pytest.mark.usefixtures("plugin")
def test_four_workers_on_two_cores_compute_two_at_a_time(opened: Opened, tmp_path: Path, meeting_place: str) -> None:
    fed, *_ = opened(4)
    free = fed.ask("meet", CLIENTS, folder=meeting_place, enough=3, seconds=60.0)
    assert max(reply["most"] for reply in free.values()) >= 3  # what slots are there to prevent
    Path(meeting_place).with_suffix(".seen").unlink()
    fed, *_ = opened(4, slots=CoreSlots(tmp_path, [0, 1]))
    for _ in range(2):
        told = fed.ask("meet", CLIENTS, folder=meeting_place, enough=3, seconds=0.2)
        assert list(told) == list(CLIENTS)
        assert max(reply["most"] for reply in told.values()) == 2


@pytest.mark.usefixtures("plugin")
def test_a_worker_that_dies_leaves_its_slot(opened: Opened, tmp_path: Path) -> None:
    crashes = tmp_path / "crashes"
    crashes.mkdir()
    slots = CoreSlots(tmp_path, [0])
    fed, *_ = opened(2, slots=slots)
    assert list(fed.ask("crash", CLIENTS, victim="b", folder=str(crashes), times=1)) == list(CLIENTS)
    assert slots.n_in_use() == 0


class Clock:
    """Slots that are waited for a thousand seconds, by a clock that only they move."""

    def __init__(self) -> None:
        self.now, self.n_waits = 0.0, 0

    @contextmanager
    def held(self, is_wanted: object = None) -> Iterator[None]:
        self.now += 1000
        self.n_waits += 1
        yield

    def perf_counter(self) -> float:
        self.now += 1
        return self.now


class OneCall:
    """The main process as a worker sees it: it sends one call and ends."""

    def __init__(self, message: object) -> None:
        self.messages, self.sent = [message], list[Any]()

    def recv(self) -> object:
        if not self.messages:
            raise EOFError
        return self.messages.pop()

    def send(self, answer: object) -> None:
        self.sent.append(answer)


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize("where", ["here", "worker"])
def test_waiting_for_a_core_is_not_a_clients_time(opened: Opened, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, engine, _ = opened(1)
    clock, spec = Clock(), engine._host._spec
    monkeypatch.setattr(client_host.time, "perf_counter", clock.perf_counter)
    call, common = Call("a", "process", 1, encode({}), encode({})), encode({})
    if where == "here":
        [(_, answer)] = InProcessEngine(spec, clock).run([call], common)  # type: ignore[arg-type]
    else:
        before = signal.getsignal(signal.SIGINT)
        connection = OneCall((call, common))
        _serve(connection, spec, clock)  # type: ignore[arg-type]
        signal.signal(signal.SIGINT, before)
        [answer] = connection.sent
    assert answer.failure is None
    assert (clock.n_waits, answer.seconds) == (1, 1.0)


@pytest.mark.usefixtures("plugin")
@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="looks at memory in /proc")
def test_workers_map_the_images_and_have_none_of_their_own(
    opened: Opened, five_clients: FederatedData, tmp_path: Path
) -> None:
    fed, *_ = opened(2)
    for reply in fed.ask("memory", CLIENTS, file=str(tmp_path / "images")).values():
        assert reply["n_mappings"] == 1
        assert 0 < reply["resident"] <= five_clients.images.nbytes + 4096
        assert reply["own"] == 0


class Meanwhile(Silent):
    """Progress that does something after round 1."""

    def __init__(self, action: Callable[[], object]) -> None:
        self.action = action

    def round_done(self, metrics: dict[str, Any]) -> None:
        if metrics["round"] == 1:
            self.action()


def test_runs_with_other_seeds_and_methods_share_one_file(own_temporary_folder: Path, tmp_path: Path) -> None:
    seen = []

    def look() -> None:
        seen.append([(file.path, file.is_in_use) for file in shared_files()])

    def second_run() -> None:
        look()
        config = resolve("digits", {**TINY, "seed": 5, "method": {"name": "fedsir", "identify": {"epochs": 1}}})
        run_experiment(config, Where(tmp_path / "second", workers=2, progress=Meanwhile(look)))
        look()

    run_experiment(resolve("digits", TINY), Where(tmp_path / "first", progress=Meanwhile(second_run)))
    assert len(seen) == 3
    assert seen[0] == seen[1] == seen[2]
    [(path, is_in_use)] = seen[0]
    assert is_in_use and path.is_relative_to(own_temporary_folder)
    assert shared_files() == []


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_keeps_no_copy_of_the_images(
    workers: int, own_temporary_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private: list[weakref.ref[Any]] = []
    alive: list[bool] = []

    def load_and_remember(*args: Any, **options: Any) -> Any:
        source = load_source(*args, **options)
        private.append(weakref.ref(source.images))
        return source

    def look() -> None:
        gc.collect()
        alive.append(private[0]() is not None)

    monkeypatch.setattr("fedsir.experiment.runner.load_source", load_and_remember)
    run_experiment(resolve("digits", TINY), Where(tmp_path / "run", workers, progress=Meanwhile(look)))
    assert alive == [False]


def test_slots_change_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_temporary_folder: Path) -> None:
    hashes = set()
    for cores, workers in (("off", 1), ("off", 2), ("1", 1), ("1", 2), ("3", 2)):
        monkeypatch.setenv("FEDSIR_CORES", cores)
        result = run_experiment(resolve("digits", TINY), Where(tmp_path / f"{cores}-{workers}", workers))
        hashes.add((result["model_sha256"], result["accuracy"], result["bytes_up"]))
    assert len(hashes) == 1


def test_a_full_temporary_folder_does_not_stop_a_run_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = run_experiment(resolve("digits", TINY), Where(tmp_path / "shared"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    alone = run_experiment(resolve("digits", TINY), Where(tmp_path / "alone"))
    assert alone["model_sha256"] == shared["model_sha256"]
