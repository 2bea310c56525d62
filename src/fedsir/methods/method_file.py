"""A method in a file of the user's own: "path/to/file.py:Class" wherever a method is named."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsir.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from fedsir.methods.base import AnyMethod


def is_in_file(name: str) -> bool:
    """Whether a method's name says where its code is."""
    return ".py:" in name


def class_name(name: str) -> str:
    """Return the class that "file.py:Class" names."""
    return name.rpartition(":")[2]


def file_sha256(name: str) -> str:
    """Return the hash of the file behind "file.py:Class": other code is another method."""
    return hashlib.sha256(_content(name)).hexdigest()


def load(name: str) -> type[AnyMethod]:
    """Return the class behind "file.py:Class"; whatever is wrong with the file is one line."""
    from fedsir.methods.base import Method

    path, content = _path(name).resolve(), _content(name)
    # One module per path and content: asked again, the same class; after an edit, the new one.
    module_name = f"fedsir_method_{hashlib.sha256(str(path).encode() + content).hexdigest()[:16]}"
    if module_name not in sys.modules:
        spec = importlib.util.spec_from_file_location(module_name, path)
        assert spec is not None and spec.loader is not None, "a .py file has a loader"
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module  # dataclasses look their module up while it is being run
        try:
            spec.loader.exec_module(module)
        except Exception as problem:
            del sys.modules[module_name]
            raise ConfigError(f"{place_of(problem, path)} cannot be run: {_said(problem)}.") from problem
    found = vars(sys.modules[module_name])
    methods = {key: value for key, value in found.items() if isinstance(value, type) and issubclass(value, Method)}
    wanted = class_name(name)
    if wanted not in found:
        raise ConfigError(f"{path} has no class {wanted!r}.{did_you_mean(wanted, methods)}")
    if wanted not in methods:
        raise ConfigError(f"{path}: {wanted} is not a subclass of fedsir.methods.base.Method.")
    method = methods[wanted]
    _check(method, path)
    method.file = f"{path}:{wanted}"
    return method


def rebuilt(name: str, settings: dict[str, Any]) -> AnyMethod:
    """Return the method of a file with these settings: how another process gets one."""
    method = load(name)
    return method(method.Config.model_validate(settings))


def place_of(problem: BaseException, file: Path) -> str:
    """Return the file, and the line of it in which a fault happened, where that is known."""
    lines = [frame.lineno for frame in traceback.extract_tb(problem.__traceback__) if Path(frame.filename) == file]
    line = getattr(problem, "lineno", None) if isinstance(problem, SyntaxError) else (lines[-1] if lines else None)
    return f"{file}, line {line}," if line else str(file)


def fault_in(method: type[AnyMethod], problem: BaseException) -> str | None:
    """Return where in a method's own file a fault happened, and what it was; None if it was elsewhere."""
    if method.file is None:
        return None
    file = _path(method.file)
    return f"{place_of(problem, file)} failed: {_said(problem)}"


def _check(method: type[AnyMethod], path: Path) -> None:
    """Refuse a class that could not be run, before anything is trained."""
    from fedsir.methods.reply_check import reply_type

    name = getattr(method, "name", None)
    if not isinstance(name, str) or not name:
        raise ConfigError(
            f'{path}: {method.__name__} has no name; add a line such as name = "{method.__name__.lower()}".'
        )
    if abstract := sorted(method.__abstractmethods__):
        raise ConfigError(f"{path}: {method.__name__} has no {abstract[0]}(…), which every method needs.")
    for task, function in {**method.tasks(), **method.server_tasks()}.items():
        try:
            reply_type(function)
        except TypeError as problem:
            raise ConfigError(f"{path}: {method.__name__}.{task} {problem}") from None


def _said(problem: BaseException) -> str:
    return " ".join(f"{type(problem).__name__}: {problem}".split())


def _path(name: str) -> Path:
    return Path(name.rpartition(":")[0]).expanduser()


def _content(name: str) -> bytes:
    path = _path(name)
    try:
        return path.read_bytes()
    except OSError as problem:
        raise ConfigError(f"method.name: cannot read {path}: {problem.strerror}.") from None
