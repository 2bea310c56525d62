"""Where methods are found: built-in ones and entry points (`fedsir.methods`) by name, others by file and class."""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points

from fedsir.errors import ConfigError, did_you_mean
from fedsir.methods import method_file
from fedsir.methods.base import Method

# Name → "module:class"; a method's module is imported when it is asked for.
BUILT_IN = {
    "fedavg": "fedsir.methods.fedavg:FedAvg",
    "fedprox": "fedsir.methods.fedprox:FedProx",
    "rofl": "fedsir.methods.rofl:RoFL",
    "rhfl": "fedsir.methods.rhfl:RHFL",
    "fedlsr": "fedsir.methods.fedlsr:FedLSR",
    "fedcorr": "fedsir.methods.fedcorr:FedCorr",
    "fedned": "fedsir.methods.fedned:FedNed",
    "fedelc": "fedsir.methods.fedelc:FedELC",
    "fednoro": "fedsir.methods.fednoro:FedNoRo",
    "pruning": "fedsir.methods.pruning:Pruning",
    "fedsir": "fedsir.methods.fedsir:FedSIR",
}


def known_methods() -> dict[str, str]:
    """Return name → "module:class" of every method that can be named; a name that fedsir itself uses stays fedsir's."""
    found = {entry.name: entry.value for entry in entry_points(group="fedsir.methods")}
    return BUILT_IN | {name: value for name, value in found.items() if name not in BUILT_IN}


def method_class(name: str) -> type[Method]:
    """Return the class of a method by name, or of "file.py:Class"; an unknown name is an error with a suggestion."""
    if method_file.is_in_file(name):
        return method_file.load(name)
    known = BUILT_IN if name in BUILT_IN else known_methods()  # to look through installed packages takes a while
    if name not in known:
        raise ConfigError(
            f"There is no method {name!r}.{did_you_mean(name, known)} Known methods: {', '.join(known)}; "
            "or FILE.py:CLASS for one of your own."
        )
    module_name, _, class_name = known[name].partition(":")
    found = getattr(importlib.import_module(module_name), class_name)
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise ConfigError(f"Method {name!r}: {known[name]} is not a subclass of fedsir.methods.base.Method.")
    return found
