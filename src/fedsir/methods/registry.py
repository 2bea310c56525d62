"""Where methods are found: built-in ones and entry points (`fedsir.methods`) by name, others by file and class.

Built-in methods are rows: to name, list or configure one needs neither its code nor torch.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from fedsir.errors import ConfigError, did_you_mean
from fedsir.methods import method_file
from fedsir.methods.settings import MethodConfig

if TYPE_CHECKING:
    from fedsir.methods.base import AnyMethod


@dataclass(frozen=True)
class Row:
    """A built-in method: its class, in the module of its name, one line about it, and the class of its settings."""

    method: str
    summary: str
    config: str = ""  # "module:Class", if it is not the METHODConfig of baseline_settings


BUILT_IN = {
    "fedavg": Row("FedAvg", "average of all clients by sample count; trusts every label", "settings:MethodConfig"),
    "fedprox": Row("FedProx", "FedAvg with clients held near the global model; trusts every label"),
    "rofl": Row(
        "RoFL",
        "clients share class centroids; where a label is far from its own, the global model's answer replaces it",
    ),
    "rhfl": Row("RHFL", "every client keeps its own model and learns from the others' answers on public images"),
    "fedlsr": Row("FedLSR", "FedAvg with a local loss in which two views of an image must agree"),
    "fedcorr": Row(
        "FedCorr",
        "finds noisy clients by the intrinsic dimension of their predictions, corrects labels by loss and confidence",
    ),
    "fedned": Row("FedNed", "leaves out models that are unsure of public images, and unlearns what these answer"),
    "fedelc": Row(
        "FedELC", "finds noisy clients by their losses, corrects their labels by gradient, weighs them by distance"
    ),
    "fednoro": Row(
        "FedNoRo", "finds noisy clients by their losses, distils the global model into them, weighs them by distance"
    ),
    "pruning": Row(
        "Pruning",
        "finds noisy clients by their class spectra and leaves them out; FedAvg over the rest",
        "fedsir_settings:SpectralConfig",
    ),
    "fedsir": Row(
        "FedSIR",
        "finds noisy clients by their class spectra, repairs their labels, trains noise-aware",
        "fedsir_settings:FedSIRConfig",
    ),
}


def known_methods() -> dict[str, str]:
    """Return name → one line about every method that can be named; a name that fedsir itself uses stays fedsir's."""
    others = [entry.name for entry in entry_points(group="fedsir.methods") if entry.name not in BUILT_IN]
    return {name: row.summary for name, row in BUILT_IN.items()} | {
        name: method_class(name).summary or f"from {method_class(name).__module__}" for name in others
    }


def config_class(name: str) -> type[MethodConfig]:
    """Return the class of a method's settings; of a built-in method without loading its code."""
    if name not in BUILT_IN:
        return method_class(name).Config
    row = BUILT_IN[name]
    found: type[MethodConfig] = _import(f"fedsir.methods.{row.config or f'baseline_settings:{row.method}Config'}")
    return found


def method_class(name: str) -> type[AnyMethod]:
    """Return the class of a method by name, or of "file.py:Class"; an unknown name is an error with a suggestion."""
    from fedsir.methods.base import Method

    if method_file.is_in_file(name):
        return method_file.load(name)
    if name in BUILT_IN:  # first: to look through installed packages takes a while
        target = f"fedsir.methods.{name}:{BUILT_IN[name].method}"
    else:
        others = {entry.name: entry.value for entry in entry_points(group="fedsir.methods")}
        known = [*BUILT_IN, *(other for other in others if other not in BUILT_IN)]
        if name not in others:
            raise ConfigError(
                f"There is no method {name!r}.{did_you_mean(name, known)} Known methods: {', '.join(known)}; "
                "or FILE.py:CLASS for one of your own."
            )
        target = others[name]
    found = _import(target)
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise ConfigError(f"Method {name!r}: {target} is not a subclass of fedsir.methods.base.Method.")
    return found


def _import(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)
