"""The rows of tables: methods, FedSIR without one of its parts, with other relabel rules, and with our own preset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fedsir.errors import ConfigError, did_you_mean
from fedsir.runs.config import Tree

ALL_CLEAN = "fedavg-all-clean"


@dataclass(frozen=True)
class Variant:
    """A method with the settings that make a row of it; `title` is how tables call it."""

    name: str
    title: str
    method: str
    settings: Tree = field(default_factory=dict)

    @property
    def has_noise(self) -> bool:
        """Whether its runs depend on the noise rate."""
        return self.name != ALL_CLEAN


METHODS = (
    Variant("fedavg", "FedAvg", "fedavg"),
    Variant("fedprox", "FedProx", "fedprox"),
    Variant("rofl", "RoFL", "rofl"),
    Variant("rhfl", "RHFL", "rhfl"),
    Variant("fedlsr", "FedLSR", "fedlsr"),
    Variant("fedcorr", "FedCorr", "fedcorr"),
    # In the released code the distillation never steps, so the paper's row is FedNed without it.
    Variant("fedned", "FedNed, as released", "fedned", {"method": {"negative_distillation": False}}),
    Variant("fedned-distilling", "FedNed, distilling", "fedned", {"method": {"negative_distillation": True}}),
    Variant("fedelc", "FedELC", "fedelc"),
    Variant("fednoro", "FedNoRo", "fednoro"),
    Variant("fedsir", "FedSIR", "fedsir"),
)
REFERENCES = (
    Variant("pruning", "Pruning", "pruning"),
    Variant(ALL_CLEAN, "FedAvg, all clean", "fedavg", {"data": {"noisy_clients": "none", "noise_rate": 0.0}}),
)
WITHOUT_A_PART = (
    Variant("without-relabelling", "w/o relabelling", "fedsir", {"method": {"relabel": {"enabled": False}}}),
    Variant("without-la", "w/o LA", "fedsir", {"method": {"la": {"enabled": False}}}),
    Variant("without-kd", "w/o KD", "fedsir", {"method": {"kd": {"enabled": False}}}),
    Variant("without-daagg", "w/o DaAgg", "fedsir", {"method": {"daagg": {"enabled": False}}}),
)
_BY_NAME = {variant.name: variant for variant in METHODS + REFERENCES}
BEYOND = (
    Variant("plus", "FedSIR plus", "fedsir", {"method": {"preset": "plus"}}),
    *(_BY_NAME[name] for name in ("fedsir", "fednoro", "fedelc", "pruning", "fedavg", ALL_CLEAN)),
)
RULES = (
    Variant("direction", "direction alone", "fedsir", {"method": {"relabel": {"rule": "direction"}}}),
    Variant("residual", "residual alone", "fedsir", {"method": {"relabel": {"rule": "residual"}}}),
    Variant("agreement", "agreement", "fedsir", {"method": {"relabel": {"rule": "agreement"}}}),
)


def named(variants: Sequence[Variant], names: Sequence[str]) -> tuple[Variant, ...]:
    """Return those of the variants that are named, in the order of the table."""
    known = [variant.name for variant in variants]
    for name in names:
        if name not in known:
            raise ConfigError(
                f"--methods: this table has no {name!r}.{did_you_mean(name, known)} It has {', '.join(known)}."
            )
    return tuple(variant for variant in variants if variant.name in names)
