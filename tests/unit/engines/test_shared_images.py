"""Images of a data set, once per machine: who writes, who maps, who removes."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

from fedsir.data.arrays import fingerprint
from fedsir.engines import user_folder
from fedsir.engines.shared_images import mapped, shared_files, shared_images
from fedsir.errors import RunFolderError

if not user_folder.HAS_LOCKS:
    pytest.skip("needs locks on open files", allow_module_level=True)


def pictures(seed: int, n: int = 50) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, 1, 8, 8), dtype=np.uint8)


def share(images: np.ndarray, n_processes: int = 2):
    return shared_images(images, fingerprint(images=images), n_processes=n_processes)


@pytest.fixture(autouse=True)
def folder(own_temporary_folder: Path) -> Path:
    return user_folder.user_folder()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("images-*"))


HOLDER = """
import sys
import numpy as np
from fedsir.data.arrays import fingerprint
from fedsir.engines.shared_images import shared_images

images = np.random.default_rng(int(sys.argv[1])).integers(0, 256, (50, 1, 8, 8), dtype=np.uint8)
print("ready", flush=True)
sys.stdin.readline()
with shared_images(images, fingerprint(images=images), n_processes=2) as (ours, file):
    print(file.stat().st_ino, (ours == images).all(), flush=True)
    sys.stdin.readline()
"""


class Holder:
    """Another process with the pictures of a seed; it takes them when told, and keeps them until told."""

    def __init__(self, seed: int, temporary: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(temporary)},
        )
        assert self.read() == "ready"

    def read(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def go_on(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self, with_signal: int | None = None) -> None:
        if with_signal is None:
            self.go_on()
        else:
            self.process.send_signal(with_signal)
        self.process.communicate(timeout=60)


@contextmanager
def holders(n: int, temporary: Path, seed: int = 1) -> Iterator[list[Holder]]:
    with ThreadPoolExecutor(n) as pool:
        started = list(pool.map(lambda _: Holder(seed, temporary), range(n)))
    try:
        yield started
    finally:
        for holder in started:
            if holder.process.poll() is None:
                holder.process.kill()
                holder.process.communicate()


def test_two_runs_map_one_file_and_the_last_removes_it(folder: Path) -> None:
    with share(pictures(1)) as (first, one):
        with share(pictures(1)) as (second, other), share(pictures(2)) as (third, another):
            assert one is not None and other is not None and another is not None
            assert one == other != another
            assert one.stat().st_ino == other.stat().st_ino
            assert (first == pictures(1)).all() and (second == pictures(1)).all() and (third == pictures(2)).all()
            assert [file.is_in_use for file in shared_files()] == [True, True]
        assert names(folder) == [one.name]
        assert (first == pictures(1)).all()
    assert names(folder) == []
    assert (first == pictures(1)).all()  # what is mapped stays readable though its name is gone


def test_processes_that_start_at_once_share_one_file(folder: Path, own_temporary_folder: Path) -> None:
    with holders(4, own_temporary_folder) as started:
        for holder in started:
            holder.go_on()
        assert len({holder.read() for holder in started}) == 1
        [file] = shared_files()
        assert (file.n_bytes, file.is_in_use) == (50 * 64, True)
        for holder in started[:3]:
            holder.end()
        assert len(names(folder)) == 1
        started[3].end()
        assert names(folder) == []


def test_comers_and_goers_never_meet_a_wrong_or_missing_file(folder: Path) -> None:
    begin = threading.Barrier(8)

    def come_and_go(k: int) -> int:
        begin.wait()
        n_right = 0
        for i in range(25):
            images = pictures((k + i) % 2)
            with share(images) as (ours, file):
                assert file is not None and file.exists()
                n_right += bool((ours == images).all())
        return n_right

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(come_and_go, range(8))) == [25] * 8
    assert names(folder) == []


@pytest.mark.parametrize("next_seed", [1, 2])
def test_what_a_kill_leaves_goes_when_the_next_run_comes(
    folder: Path, own_temporary_folder: Path, next_seed: int
) -> None:
    with holders(1, own_temporary_folder) as [holder]:
        holder.go_on()
        assert holder.read().endswith("True")
        holder.end(signal.SIGKILL)
    [left] = shared_files()
    assert not left.is_in_use
    left.path.write_bytes(b"cut short")  # as a power cut may leave it: nobody vouches for it any more
    (folder / "images-abc.part").write_bytes(b"cut short while it was written")
    with share(pictures(next_seed)) as (ours, file):
        assert file is not None
        assert names(folder) == [file.name]
        assert (ours == pictures(next_seed)).all()
    assert names(folder) == []


def test_the_private_copy_goes_once_the_images_are_shared() -> None:
    images = pictures(1)
    private = weakref.ref(images)
    with share(images) as (ours, _):
        del images
        assert private() is None
        assert (ours == pictures(1)).all()


def test_writing_to_shared_images_changes_nobody_elses() -> None:
    with share(pictures(1)) as (first, file), share(pictures(1)) as (second, _):
        assert file is not None
        first[:] = 0
        assert (second == pictures(1)).all()
        assert (mapped(file, first.shape) == pictures(1)).all()


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="looks at memory in /proc")
def test_shared_images_are_mapped_not_copied() -> None:
    images = pictures(1, n=4000)
    with share(images) as (ours, file):
        assert int(ours.sum()) == int(images.sum())  # every page is read
        [mapping] = [part for part in Path("/proc/self/smaps").read_text().split("VmFlags") if str(file) in part]
        kilobytes = dict(line.split(":") for line in mapping.splitlines() if line.endswith(" kB"))
        assert int(kilobytes["Rss"].split()[0]) * 1024 >= images.nbytes
        assert int(kilobytes["Anonymous"].split()[0]) == 0  # not one page is this process's own


def test_a_disk_that_is_full_is_said_where_there_are_workers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path, content: bytes) -> int:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(Path, "write_bytes", fail)
    images = pictures(1)
    is_said = pytest.raises(RunFolderError, match=r"images-.*: No space left on device.*TMPDIR, or use --workers 1")
    with is_said as said, share(images, n_processes=2):
        pytest.fail("there is nothing to share")
    assert "\n" not in str(said.value)
    with share(images, n_processes=1) as (ours, file):
        assert ours is images and file is None
    assert names(folder) == []


def test_an_error_of_the_run_itself_is_no_full_disk() -> None:
    with pytest.raises(OSError, match="of the run"), share(pictures(1)):
        raise OSError("of the run")


def test_a_folder_that_is_not_ours_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.chmod(0o755)
    with pytest.raises(RunFolderError, match=r"you own and nobody else can use.*TMPDIR"), share(pictures(1)):
        pytest.fail("others could read and replace the images")
    folder.chmod(0o700)
    monkeypatch.setattr(os, "getuid", lambda: folder.stat().st_uid + 1)
    with pytest.raises(RunFolderError, match="you own"):
        user_folder.user_folder()  # made just now, by somebody who is not "us"
    monkeypatch.undo()


def test_a_link_in_place_of_the_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    folder.rmdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    folder.symlink_to(elsewhere)
    with pytest.raises(RunFolderError, match="you own"), share(pictures(1)):
        pytest.fail("the link leads to a place that somebody else chose")
    assert not list(elsewhere.iterdir())


def test_a_folder_cleaned_away_during_a_run_does_no_harm(folder: Path) -> None:
    with share(pictures(1)) as (ours, _):
        shutil.rmtree(folder)
        assert (ours == pictures(1)).all()
    assert not folder.exists()


def test_a_run_whose_file_was_cleaned_away_leaves_another_runs_file_alone(folder: Path) -> None:
    with ExitStack() as first, ExitStack() as second:
        _, file = first.enter_context(share(pictures(1)))
        assert file is not None
        file.unlink()
        assert second.enter_context(share(pictures(1)))[1] == file
        first.close()
        assert names(folder) == [file.name]
    assert names(folder) == []


def test_without_locks_each_run_has_a_file_of_its_own(
    folder: Path, own_temporary_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_folder, "HAS_LOCKS", False)
    with share(pictures(1)) as (first, one), share(pictures(1)) as (second, other):
        assert one is not None and other is not None and one != other
        assert (first == second).all()
    assert shared_files() == []
    assert [path.name for path in own_temporary_folder.iterdir()] == [folder.name]
