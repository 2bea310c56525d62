"""A method in a file of the user's own: "path/to/file.py:Class" wherever a method is named."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsir.errors import ConfigError, did_you_mean
from fedsir.methods import own_code

if TYPE_CHECKING:
    from fedsir.methods.base import AnyMethod


def is_in_file(name: str) -> bool:
    """Whether a method's name says where its code is."""
    return ".py:" in name


def class_name(name: str) -> str:
    """Return the class that "file.py:Class" names."""
    return name.rpartition(":")[2]


_LOADING = threading.RLock()  # else a thread could find a module that another one is still running


def file_sha256(name: str) -> str:
    """Return the hash of the file behind "file.py:Class": other code is another method."""
    return hashlib.sha256(_content(name)).hexdigest()


def load(name: str) -> type[AnyMethod]:
    """Return the class behind "file.py:Class"; whatever is wrong with the file is one line."""
    from fedsir.methods.base import Method

    path, content = _path(name).resolve(), _content(name)
    # One module per path and content: asked again, the same class; after an edit, the new one.
    module_name = f"fedsir_method_{hashlib.sha256(str(path).encode() + content).hexdigest()[:16]}"
    with _LOADING:
        _ensure_loaded(module_name, path)
    found = vars(sys.modules[module_name])
    methods = {key: value for key, value in found.items() if isinstance(value, type) and issubclass(value, Method)}
    wanted = class_name(name)
    if wanted not in found:
        raise ConfigError(f"{path} has no class {wanted!r}.{did_you_mean(wanted, methods)}")
    if wanted not in methods:
        raise ConfigError(f"{path}: {wanted} is not a subclass of fedsir.methods.base.Method.")
    method = methods[wanted]
    own_code.check_method(method)
    method.file = f"{path}:{wanted}"
    return method


def _ensure_loaded(module_name: str, path: Path) -> None:
    if module_name in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None and spec.loader is not None, "a .py file has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses look their module up while it is being run
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as problem:
        del sys.modules[module_name]
        where = own_code.place_in(path, problem)
        raise ConfigError(f"{where} cannot be run: {own_code.said(problem)}.") from problem


def rebuilt(name: str, settings: dict[str, Any]) -> AnyMethod:
    """Return the method of a file with these settings: how another process gets one."""
    method = load(name)
    return method(method.Config.model_validate(settings))


def _path(name: str) -> Path:
    return Path(name.rpartition(":")[0]).expanduser()


def _content(name: str) -> bytes:
    path = _path(name)
    try:
        return path.read_bytes()
    except OSError as problem:
        raise ConfigError(f"method.name: cannot read {path}: {problem.strerror}.") from None
