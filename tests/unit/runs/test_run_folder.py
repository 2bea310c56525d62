"""A run's folder: files whole or not at all, one process at a time, nobody else's files."""

import errno
import hashlib
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import filelock
import pytest

from fedsir.errors import RunFolderError
from fedsir.runs.config import RunConfig
from fedsir.runs.file_forms import DataFile
from fedsir.runs.run_folder import RunFolder

Settings = Callable[..., RunConfig]
Contents = Callable[[Path], dict[str, bytes]]


def no_space(*_: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def line(t: int, **more: Any) -> dict[str, Any]:
    """Return the least that a line of metrics.jsonl has."""
    return {"round": t, "seconds": 0.5, "failures": {}, "bytes_up": 1, "bytes_down": 1, **more}


def refuse_to_open(folder: Path, config: RunConfig, match: str) -> None:
    with pytest.raises(RunFolderError, match=match), RunFolder(folder).opened(config):
        pytest.fail("opened")


def checkpoint_name(t: int, content: bytes) -> str:
    return f"checkpoint-{t:06d}-{hashlib.sha256(content).hexdigest()[:16]}.safetensors"


# ---------------------------------------------------------------- writing


@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, contents: Contents, moment: str
) -> None:
    folder = RunFolder(tmp_path)
    folder.write("a.json", b"before")
    monkeypatch.setattr(*((os, "fsync") if moment == "fsync" else (Path, "replace")), no_space)
    with pytest.raises(RunFolderError, match=r"a\.json: No space left on device.*goes on"):
        folder.write("a.json", b"after")
    assert contents(tmp_path) == {"a.json": b"before"}
    monkeypatch.undo()
    folder.write("a.json", b"after")
    assert contents(tmp_path) == {"a.json": b"after"}


def test_ctrl_c_in_the_middle_of_a_write_leaves_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, contents: Contents
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    folder = RunFolder(tmp_path)
    folder.write("a.json", b"before")
    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        folder.write("a.json", b"after")
    assert contents(tmp_path) == {"a.json": b"before"}


def test_numbers_that_json_has_no_word_for_become_null(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    value = {"a": float("nan"), "b": [1.5, float("inf"), (2, float("-inf"))], "c": {"d": None}, "é": True}
    plain = {"a": None, "b": [1.5, None, [2, None]], "c": {"d": None}, "é": True}
    folder.write_json("a.json", value)
    folder.append_metrics({"round": 0, **value})

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8"), parse_constant=refuse) == plain
    assert json.loads((tmp_path / "metrics.jsonl").read_text(encoding="utf-8"), parse_constant=refuse) == {
        "round": 0,
        **plain,
    }


@pytest.mark.parametrize("text", ["", "{", "[]", '{"other": 1}', "null", "\xff"])
def test_a_damaged_json_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "result.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(RunFolderError, match=r"result\.json is damaged: remove it"):
        RunFolder(tmp_path).result()
    assert RunFolder(tmp_path).read_json("data.json", DataFile) is None


# ---------------------------------------------------------------- metrics


def test_lines_beyond_the_checkpoint_are_dropped(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for t in range(5):
        folder.append_metrics(line(t, loss=t / 2))
    folder.drop_metrics_after(2)
    assert folder.metrics() == [line(t, loss=t / 2) for t in range(3)]
    folder.append_metrics(line(3))
    assert [row["round"] for row in folder.metrics()] == [0, 1, 2, 3]
    folder.drop_metrics_after(-1)
    assert (tmp_path / "metrics.jsonl").read_bytes() == b""


def test_a_last_line_may_be_cut_anywhere(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    path = tmp_path / "metrics.jsonl"
    folder.append_metrics(line(0))
    whole = path.read_bytes()
    last = json.dumps(line(1, participants=["são paulo", "北京"]), ensure_ascii=False).encode()
    for cut in range(len(last)):  # also in the middle of a letter
        path.write_bytes(whole + last[:cut])
        folder.drop_metrics_after(0)
        assert path.read_bytes() == whole, f"cut after {cut} bytes"


def test_a_name_with_a_line_separator_does_not_split_a_line(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    row = line(0, participants=["a\u2028b", "c\x85d", "e\nf"])
    folder.append_metrics(row)
    assert folder.metrics() == [row]


def test_metrics_that_lack_a_round_are_not_gone_on_with(tmp_path: Path, contents: Contents) -> None:
    folder = RunFolder(tmp_path)
    for t in (0, 1, 3):
        folder.append_metrics(line(t))
    before = contents(tmp_path)
    with pytest.raises(RunFolderError, match=r"metrics\.jsonl lacks rounds"):
        folder.drop_metrics_after(3)
    assert contents(tmp_path) == before
    with pytest.raises(RunFolderError, match=r"metrics\.jsonl lacks rounds"):
        RunFolder(tmp_path / "nothing").drop_metrics_after(0)


def test_a_full_disk_while_appending_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(RunFolderError, match=r"metrics\.jsonl: No space left on device.*goes on"):
        RunFolder(tmp_path).append_metrics({"round": 0})


# ---------------------------------------------------------------- checkpoints


def test_only_the_newest_checkpoint_is_kept(tmp_path: Path, contents: Contents) -> None:
    folder = RunFolder(tmp_path)
    assert folder.read_checkpoint() is None
    for t in (0, 1, 9, 10):
        folder.write_checkpoint(t, b"state %d" % t)
    assert contents(tmp_path) == {checkpoint_name(10, b"state 10"): b"state 10"}


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b[:0], lambda b: bytes([b[0] ^ 1]) + b[1:]])
def test_a_damaged_checkpoint_is_named(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    folder = RunFolder(tmp_path)
    folder.write_checkpoint(2, b"some state")
    name = checkpoint_name(2, b"some state")
    (tmp_path / name).write_bytes(damage(b"some state"))
    with pytest.raises(RunFolderError, match=f"{name} is damaged"):
        folder.read_checkpoint()


def test_a_checkpoint_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    name = checkpoint_name(2, b"")
    (tmp_path / name).mkdir()
    with pytest.raises(RunFolderError, match=f"{name} cannot be read"):
        RunFolder(tmp_path).read_checkpoint()


# ---------------------------------------------------------------- opening


def test_a_new_folder_gets_the_settings_first(tmp_path: Path, tiny: Settings) -> None:
    folder = RunFolder(tmp_path / "a" / "b")
    with folder.opened(tiny()):
        assert folder.stored_config() == tiny().tree()


def test_a_file_is_no_folder(tmp_path: Path, tiny: Settings) -> None:
    (tmp_path / "run").write_text("mine")
    refuse_to_open(tmp_path / "run", tiny(), r"run is a file: --out must name a folder")
    refuse_to_open(tmp_path / "run" / "x", tiny(), r"run/x: .*Choose another --out")
    assert (tmp_path / "run").read_text() == "mine"


@pytest.mark.parametrize("name", ["thesis.tex", "config.toml"])
def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path, tiny: Settings, contents: Contents, name: str) -> None:
    (tmp_path / name).write_text("title = 'mine'\n")
    refuse_to_open(tmp_path, tiny(), r"[Cc]hoose another --out")
    assert contents(tmp_path) == {name: b"title = 'mine'\n"}


def test_other_settings_are_refused_by_their_key_and_change_nothing(
    tmp_path: Path, tiny: Settings, contents: Contents
) -> None:
    folder = RunFolder(tmp_path)
    with folder.opened(tiny(seed=1)):
        folder.write("data.json", b"{}")
    before = contents(tmp_path)
    refuse_to_open(tmp_path, tiny(seed=2), r"seed is 1 there, 2 now\. Choose another")
    other = tiny(seed=1, method={"lr": 0.5, "epochs": 3})
    refuse_to_open(tmp_path, other, r"method\.epochs is 1 there, 3 now \(and 1 more\)")
    other = tiny(seed=1, data={"cover_min_samples": 3})
    refuse_to_open(tmp_path, other, r"data\.cover_min_samples is None there, 3 now")
    assert contents(tmp_path) == before
    with folder.opened(tiny(seed=1)):
        pass


def test_one_process_at_a_time(tmp_path: Path, tiny: Settings) -> None:
    with RunFolder(tmp_path).opened(tiny()):
        refuse_to_open(tmp_path, tiny(), "in use by another process")
    with RunFolder(tmp_path).opened(tiny()):
        pass  # and the lock is given back


def test_a_run_that_begins_while_we_wait_for_the_lock_is_noticed(
    tmp_path: Path, tiny: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    acquire = filelock.FileLock.acquire

    def begin_first(self: Any, *args: Any, **options: Any) -> Any:
        monkeypatch.setattr(filelock.FileLock, "acquire", acquire)

        def other() -> None:
            with RunFolder(tmp_path).opened(tiny(seed=1)):
                RunFolder(tmp_path).write("data.json", b"{}")

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        return acquire(self, *args, **options)

    monkeypatch.setattr(filelock.FileLock, "acquire", begin_first)
    refuse_to_open(tmp_path, tiny(seed=2), "seed is 1 there, 2 now")


def test_a_folder_that_cannot_be_written_is_said(
    tmp_path: Path, tiny: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(filelock.FileLock, "acquire", refuse)
    refuse_to_open(tmp_path, tiny(), r"Permission denied\. Choose another --out")


def test_settings_in_the_folder_that_cannot_be_read_are_named(tmp_path: Path, tiny: Settings) -> None:
    folder = RunFolder(tmp_path)
    with folder.opened(tiny()):
        folder.write("data.json", b"{}")
    (tmp_path / "config.toml").write_bytes(b"seed = \xff")
    refuse_to_open(tmp_path, tiny(), r"config\.toml is not a TOML file.*Restore it")
