"""The folder of a run: what is written where, when, and how it survives a kill at any moment.

config.toml           the resolved settings; written first, never changed once the run has its data
data.json             clients, sizes, who is really noisy, realised noise, hash of the data
provenance.json       versions, machine, where the first weights came from
metrics.jsonl         one line per round, appended before that round's checkpoint
checkpoint-T-HASH.safetensors   server and client state after round T; HASH is of its content
identification.json, relabelling.json, labels.npz, labels.csv (those that were changed), predictions.npz,
model.safetensors, result.json   at the end

Every file but metrics.jsonl appears whole or not at all (written beside, then renamed). Lines of metrics.jsonl beyond
the checkpoint belong to a round that was cut short; they are dropped when the run goes on.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import filelock

from fedsir.errors import ConfigError, FedsirError, RunFolderError
from fedsir.runs.config import Tree, flat, parse_config, read_toml
from fedsir.runs.file_forms import FileForm, MetricsLine, ResultFile

if TYPE_CHECKING:
    from fedsir.runs.config import RunConfig

LONGEST_NAME = ".checkpoint-000000-0123456789abcdef.safetensors.part"
CHECKPOINT = re.compile(r"checkpoint-(\d{6})-([0-9a-f]{16})\.safetensors")


class RunFolder:
    """A run's files. Opening a folder of another run is an error that changes nothing in it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    # ------------------------------------------------------------------ opening

    @contextlib.contextmanager
    def opened(self, config: RunConfig) -> Iterator[None]:
        """Claim the folder for this run: create it, or make sure that it belongs to the same settings."""
        check_name(self.path)
        lock = filelock.FileLock(self.path / ".lock")
        try:
            with _usable(self.path):
                self.refuse_other(config)
                self.path.mkdir(parents=True, exist_ok=True)
                lock.acquire(timeout=0)
                self.refuse_other(config)  # again: another process may have begun a run here before the lock was ours
                for leftover in self.path.glob(".*.part"):  # a kill while a file was being written
                    leftover.unlink()
            if not self._has_begun():
                self.write("config.toml", config.to_toml().encode())
            yield
        finally:
            lock.release()

    def refuse_other(self, config: RunConfig) -> None:
        """Raise an error if the folder holds something else than a run with these settings."""
        if not self.path.exists():
            return
        if not self.path.is_dir():
            raise RunFolderError(f"{self.path} is a file: --out must name a folder.")
        stored = self.path / "config.toml"
        if not stored.exists():
            foreign = [p.name for p in self.path.iterdir() if not p.name.startswith(".")]
            if foreign:
                raise RunFolderError(
                    f"{self.path} is not a run folder and not empty (it holds {foreign[0]!r}): choose another --out."
                )
            return
        theirs = self.config_of([config.method.name])
        old, new = dict(flat(theirs.tree() if theirs else self.stored_config())), dict(flat(config.tree()))
        differences = [key for key in {**old, **new} if old.get(key) != new.get(key)]
        if differences and self._has_begun():
            key = differences[0]
            more = f" (and {len(differences) - 1} more)" if len(differences) > 1 else ""
            raise RunFolderError(
                f"{self.path} holds a run with other settings: {key} is {old.get(key)!r} there, {new.get(key)!r} "
                f"now{more}. "
                "Choose another --out, or give the same settings to go on with that run."
            )

    def _has_begun(self) -> bool:
        """Whether there is anything to lose: a run that never got its data has only claimed the folder."""
        found = {path.name for path in self.path.iterdir() if not path.name.startswith(".")}
        return not (self.path / ".lock").exists() or bool(found - {"config.toml"})

    def config_of(self, methods: Collection[str]) -> RunConfig | None:
        """Return the stored settings, with defaults for what was no setting then; None if they do not do any more.

        Only for one of these methods: a method may be code in a file, which is loaded only if it was named now.
        """
        stored = self.stored_config()
        method = stored.get("method")
        if not isinstance(method, dict) or method.get("name") not in methods:
            return None
        try:
            return parse_config(stored)
        except ConfigError:  # a setting that is gone, or was edited by hand
            return None

    def stored_config(self) -> Tree:
        """Return config.toml."""
        try:
            return read_toml(self.path / "config.toml")
        except ConfigError as problem:
            raise RunFolderError(f"{problem} Restore it, or choose another --out.") from None

    # ------------------------------------------------------------------ files

    def write(self, name: str, content: bytes) -> None:
        """Write a file so that it is there whole or not at all, also if the disk fills up or the power fails."""
        target = self.path / name
        beside = target.with_name(f".{name}.part")
        try:
            with beside.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(target)
        except OSError as problem:
            raise RunFolderError(
                f"Could not write {target}: {problem.strerror}. What was there before is intact; "
                "once that is put right, the same command goes on from the last checkpoint."
            ) from None
        finally:  # it is gone by now unless something went wrong, which may also be Ctrl-C
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)

    def write_json(self, name: str, value: Any) -> None:
        self.write(
            name, (json.dumps(strict_json(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()
        )

    def read_json(self, name: str, form: type[FileForm]) -> dict[str, Any] | None:
        """Return a JSON file's object, None if the file is not there; one of another form is damaged."""
        path = self.path / name
        with reading(path, may_be_missing=True):
            return _checked(json.loads(path.read_bytes()), form)
        return None

    def result(self) -> dict[str, Any] | None:
        """Return result.json, None if the run is not finished."""
        found = self.read_json("result.json", ResultFile)
        return None if found is None else found | {"run_dir": str(self.path)}  # it may have been moved since

    def finished_result(self) -> dict[str, Any]:
        """Return result.json; a folder without a finished run is an error that names it."""
        config = self.path / "config.toml"
        try:
            is_run = config.is_file()
        except (OSError, ValueError) as problem:
            raise RunFolderError(f"{self.path} cannot be read: {problem}.") from None
        if not is_run:
            raise RunFolderError(f"{self.path} is not a run folder: there is no config.toml in it.")
        result = self.result()
        if result is None:
            raise RunFolderError(f"The run in {self.path} is not finished: go on with `{self.command()}`.")
        return result

    def command(self) -> str:
        """Return the command that goes on with the run in this folder."""
        return shlex.join(["fedsir", "run", str(self.path / "config.toml"), "--out", str(self.path)])

    # ------------------------------------------------------------------ metrics

    def append_metrics(self, line: Mapping[str, Any]) -> None:
        path = self.path / "metrics.jsonl"
        try:
            with path.open("ab") as file:
                file.write(_line(line))
                file.flush()
                os.fsync(file.fileno())  # the checkpoint that follows counts on it
        except OSError as problem:
            raise RunFolderError(
                f"Could not append to {path}: {problem.strerror}. Once that is put right, the same command goes on "
                "from the last checkpoint."
            ) from None

    def metrics(self) -> list[dict[str, Any]]:
        """Return the lines of metrics.jsonl; what follows the last line break was cut short and is left out."""
        path = self.path / "metrics.jsonl"
        with reading(path, may_be_missing=True):
            # Bytes: a cut may go through a letter of several bytes, and only \n ends a line.
            lines = path.read_bytes().split(b"\n")[:-1]
            return [_checked(json.loads(line), MetricsLine) for line in lines]
        return []

    def drop_metrics_after(self, t: int) -> None:
        """Forget the lines of rounds beyond the checkpoint."""
        kept = [line for line in self.metrics() if line["round"] <= t]
        if [line["round"] for line in kept] != list(range(t + 1)):
            raise RunFolderError(
                f"{self.path / 'metrics.jsonl'} lacks rounds that the checkpoint of round {t} has behind it: "
                "restore the file, or remove the folder and run the command again."
            )
        if (self.path / "metrics.jsonl").exists():
            self.write("metrics.jsonl", b"".join(map(_line, kept)))

    # ------------------------------------------------------------------ checkpoints

    def write_checkpoint(self, t: int, content: bytes) -> None:
        """Write the checkpoint of round t, then remove the ones before it."""
        digest = hashlib.sha256(content).hexdigest()[:16]
        self.write(f"checkpoint-{t:06d}-{digest}.safetensors", content)
        self.drop_older_checkpoints()

    def drop_older_checkpoints(self) -> None:
        """Remove all checkpoints but the newest; a kill may have left one."""
        for _, path in self._checkpoints()[:-1]:
            with _usable(self.path):
                path.unlink(missing_ok=True)

    def checkpoint_round(self) -> int:
        """Return the round that the newest checkpoint is named after, -1 if there is none."""
        return max((int(match[1]) for match, _ in self._checkpoints()), default=-1)

    def read_checkpoint(self) -> bytes | None:
        """Return the newest checkpoint, None if there is none; a damaged one is an error."""
        found = self._checkpoints()
        if not found:
            return None
        match, path = found[-1]
        try:
            content = path.read_bytes()
        except OSError as problem:
            raise RunFolderError(f"{path} cannot be read: {problem.strerror}. Choose another --out.") from None
        if hashlib.sha256(content).hexdigest()[:16] != match[2]:
            raise RunFolderError(
                f"{path} is damaged (its content does not match the hash in its name): remove the folder and "
                "run the command again, or restore the file from a copy."
            )
        return content

    def _checkpoints(self) -> list[tuple[re.Match[str], Path]]:
        paths = sorted(self.path.glob("checkpoint-*.safetensors"), key=lambda path: path.name)
        return [(match, path) for path in paths if (match := CHECKPOINT.fullmatch(path.name))]


@contextlib.contextmanager
def reading(path: Path, *, may_be_missing: bool = False) -> Iterator[None]:
    """Turn whatever goes wrong while a file of a run is read into one line that names it."""
    try:
        yield
    except FedsirError:
        raise
    except (FileNotFoundError, NotADirectoryError):
        if not may_be_missing:
            raise RunFolderError(
                f"{path} is missing: restore it from a copy, or remove its folder and run the same command again."
            ) from None
    except PermissionError as problem:
        raise RunFolderError(f"{path} cannot be read: {problem.strerror}.") from None
    except Exception as problem:  # readers of JSON, TOML, npz and safetensors have a dozen ways to say it
        # A result can be made again from the last checkpoint.
        advice = "remove it" if path.name == "result.json" else "restore it from a copy, or remove its folder"
        raise RunFolderError(f"{path} is damaged: {advice} and run the same command again.") from problem


def check_name(path: Path) -> None:
    """Refuse a folder whose name, or the names of files in it, the system or a text file cannot take."""
    try:
        str(path).encode()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            (path / LONGEST_NAME).lstat()
    except ValueError:  # no letters, or a zero byte
        raise RunFolderError(f"{str(path)!r} cannot be the name of a folder. Choose another --out.") from None
    except OSError as problem:
        raise RunFolderError(f"Cannot use {path}: {problem.strerror}. Choose another --out.") from None


@contextlib.contextmanager
def _usable(path: Path) -> Iterator[None]:
    try:
        yield
    except filelock.Timeout:
        raise RunFolderError(f"{path} is in use by another process: wait for it, or choose another --out.") from None
    except FileExistsError:
        raise RunFolderError(f"{path} is a file: --out must name a folder.") from None
    except OSError as problem:
        raise RunFolderError(f"Cannot use {path}: {problem.strerror}. Choose another --out.") from None


def usable_folder(path: Path) -> Path:
    """Return a folder that files can be put into, made if need be; else an error that says why."""
    check_name(path)
    with _usable(path):
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return path


def strict_json(value: Any) -> Any:
    """Return a tree with None for every number that JSON has no word for (NaN, infinity): undefined is null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: strict_json(child) for key, child in value.items()}
    return [strict_json(child) for child in value] if isinstance(value, list | tuple) else value


def _checked(value: Any, form: type[FileForm]) -> dict[str, Any]:
    form.model_validate(value)
    checked: dict[str, Any] = value
    return checked


def _line(metrics: Mapping[str, Any]) -> bytes:
    return (json.dumps(strict_json(metrics), ensure_ascii=False, allow_nan=False) + "\n").encode()
