"""The paper's tables: which data, which rows, which columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import TypeVar

from fedsir.paper.scales import Scale
from fedsir.paper.variants import METHODS, REFERENCES, RULES, WITHOUT_A_PART, Variant, named
from fedsir.runs.config import RunConfig, Tree, merge
from fedsir.runs.recipes import resolve

Number = TypeVar("Number", int, float)
NOISE_RATES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True)
class Table:
    """A table of the paper.

    Attributes
    ----------
    reference : the row that all others are compared with
    """

    name: str
    title: str
    dataset: str
    alphas: tuple[float, ...]
    variants: tuple[Variant, ...]
    reference: str
    noise_rates: tuple[float, ...] = NOISE_RATES


_FEDSIR = tuple(variant for variant in METHODS if variant.name == "fedsir")
TABLES = {
    table.name: table
    for table in (
        Table("table-cifar10", "CIFAR-10, symmetric noise", "cifar10", (0.1, 0.5, 2.0), METHODS + REFERENCES, "fedsir"),
        Table(
            "table-cifar100", "CIFAR-100, symmetric noise", "cifar100", (0.3, 0.5, 2.0), METHODS + REFERENCES, "fedsir"
        ),
        Table(
            "ablation",
            "FedSIR without one of its parts",
            "cifar10",
            (1.0,),
            WITHOUT_A_PART + _FEDSIR + REFERENCES,
            "fedsir",
        ),
        Table("relabel-rules", "FedSIR's relabel rules", "cifar10", (1.0,), RULES, "agreement"),
    )
}


@dataclass(frozen=True)
class Figure:
    """A figure of the paper; `table` is the one whose runs it needs, None where it needs none."""

    name: str
    title: str
    table: str | None


FIGURES = {
    figure.name: figure
    for figure in (
        Figure("figure-similarity", "class similarities of one client with more and more wrong labels", None),
        Figure("figure-noise-reduction", "label noise that FedSIR's relabel rules take away", "relabel-rules"),
    )
}


@dataclass(frozen=True)
class Cell:
    """A number to be measured: a row of a table at one α and one noise rate, over seeds.

    Attributes
    ----------
    noise_rate : None for a row that has no noise and stands beside all noise rates
    """

    variant: Variant
    alpha: float
    noise_rate: float | None
    configs: tuple[RunConfig, ...]


@dataclass(frozen=True)
class Selection:
    """Which part of a table to reproduce; None takes all of it, or what the scale has instead."""

    alphas: tuple[float, ...] | None = None
    noise_rates: tuple[float, ...] | None = None
    methods: tuple[str, ...] | None = None
    seeds: tuple[int, ...] | None = None

    def of(self, table: Table, scale: Scale) -> Selection:
        """Return the selection with everything filled in."""
        known = tuple(variant.name for variant in table.variants)
        methods = known if self.methods is None else self.methods
        return Selection(
            self.alphas or scale.alphas or table.alphas,
            self.noise_rates or scale.noise_rates or table.noise_rates,
            tuple(variant.name for variant in named(table.variants, methods)),
            self.seeds or scale.seeds,
        )

    def widened(self, table: Table, scale: Scale, seeds: tuple[int, ...] = ()) -> Selection:
        """Return the selection together with all that the table has at this scale, and with more seeds."""
        chosen, whole = self.of(table, scale), Selection().of(table, scale)
        return Selection(
            _all(table.alphas, whole.alphas, chosen.alphas),
            _all(table.noise_rates, whole.noise_rates, chosen.noise_rates),
            whole.methods,
            _all(whole.seeds, chosen.seeds, seeds),
        )

    def or_else(self, other: Selection) -> Selection:
        """Return the selection with what it leaves open from another one."""
        return Selection(*(own or theirs for own, theirs in zip(astuple(self), astuple(other), strict=True)))


def _all(*values: tuple[Number, ...] | None) -> tuple[Number, ...]:
    return tuple(sorted({value for some in values for value in some or ()}))


def cells(table: Table, scale: Scale, selection: Selection) -> list[Cell]:
    """Return the cells of a table in its order: by α, by noise rate, by row."""
    chosen = selection.of(table, scale)
    assert chosen.alphas and chosen.noise_rates and chosen.methods and chosen.seeds, "filled in"
    rows = named(table.variants, chosen.methods)
    found = []
    for alpha in chosen.alphas:
        for noise_rate in chosen.noise_rates:
            for variant in (row for row in rows if row.has_noise):
                found.append(_cell(table, scale, variant, alpha, noise_rate, chosen.seeds))
        for variant in (row for row in rows if not row.has_noise):
            found.append(_cell(table, scale, variant, alpha, None, chosen.seeds))
    return found


def _cell(
    table: Table, scale: Scale, variant: Variant, alpha: float, noise_rate: float | None, seeds: Sequence[int]
) -> Cell:
    data: Tree = {"alpha": alpha} | ({} if noise_rate is None else {"noise_rate": noise_rate})
    tree = merge(scale.settings, merge({"data": data, "method": {"name": variant.method}}, variant.settings))
    recipe = scale.recipes[table.dataset]
    return Cell(variant, alpha, noise_rate, tuple(resolve(recipe, tree | {"seed": seed}) for seed in seeds))
