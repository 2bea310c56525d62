"""Tables: which data, which rows, which conditions. All but one are the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import TypeVar

from fedsir.data.noise_rate import NoiseRate, noise_rate_text
from fedsir.errors import ConfigError
from fedsir.paper.conditions import Condition
from fedsir.paper.scales import DIGITS, Scale
from fedsir.paper.variants import BEYOND, METHODS, REFERENCES, RULES, WITHOUT_A_PART, Variant, named
from fedsir.runs.config import RunConfig, merge
from fedsir.runs.recipes import resolve

Number = TypeVar("Number", int, float, NoiseRate)
NOISE_RATES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True)
class Table:
    """A table: its rows under every α and noise rate, or under the conditions that it lists.

    Attributes
    ----------
    reference : the row that the table is about; all others are compared with it if there are no rivals
    alphas, noise_rates : of a table of the paper
    conditions : of any other
    digits_conditions : instead of these where the runs are on digits
    rivals : rows of which, under each condition, the best is what all others are compared with
    """

    name: str
    title: str
    dataset: str
    alphas: tuple[float, ...]
    variants: tuple[Variant, ...]
    reference: str
    noise_rates: tuple[float, ...] = NOISE_RATES
    conditions: tuple[Condition, ...] = ()
    digits_conditions: tuple[Condition, ...] = ()
    rivals: tuple[str, ...] = ()

    @property
    def is_own(self) -> bool:
        """Whether it is not one of the paper's."""
        return bool(self.conditions)

    def listed(self, scale: Scale) -> tuple[Condition, ...]:
        """Return the conditions that it lists; none if it has every α with every noise rate."""
        return self.digits_conditions if scale.recipes[self.dataset] == DIGITS else self.conditions

    def axes(self, scale: Scale) -> tuple[tuple[float, ...], tuple[NoiseRate, ...]]:
        """Return every α and every noise rate that it has at a scale."""
        listed = self.listed(scale)
        if not listed:
            return scale.alphas or self.alphas, scale.noise_rates or self.noise_rates
        rates = (condition.noise_rate for condition in listed if condition.noise_rate is not None)
        return tuple(dict.fromkeys(condition.alpha for condition in listed)), tuple(dict.fromkeys(rates))


def _beyond(usual: float, *others: float) -> tuple[Condition, ...]:
    """Return more and other noise on the usual split, and the middle noise rate on other splits."""
    return (
        *(Condition(usual, rate) for rate in (0.3, 0.6, 0.9)),
        Condition(usual, 0.4, "asymmetric"),
        Condition(usual, (0.1, 0.9)),
        *(Condition(alpha, 0.6) for alpha in others),
    )


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
        Table(
            "beyond",
            "FedSIR plus, also where noise is not symmetric or differs by client (not in the paper)",
            "cifar10",
            (),
            BEYOND,
            "plus",
            noise_rates=(),
            conditions=_beyond(0.5, 0.1, 2.0),
            digits_conditions=_beyond(2.0, 0.1, 0.5),
            rivals=("fedsir", "fednoro", "pruning"),
        ),
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
    """A number to be measured: a row of a table under one condition, over seeds.

    Attributes
    ----------
    condition : without noise for a row that has none; such a row stands beside all conditions of its α
    """

    variant: Variant
    condition: Condition
    configs: tuple[RunConfig, ...]


@dataclass(frozen=True)
class Selection:
    """Which part of a table to reproduce; None takes all of it, or what the scale has instead."""

    alphas: tuple[float, ...] | None = None
    noise_rates: tuple[NoiseRate, ...] | None = None
    methods: tuple[str, ...] | None = None
    seeds: tuple[int, ...] | None = None

    def of(self, table: Table, scale: Scale) -> Selection:
        """Return the selection with everything filled in."""
        known = tuple(variant.name for variant in table.variants)
        methods = known if self.methods is None else self.methods
        alphas, noise_rates = table.axes(scale)
        return Selection(
            self.alphas or alphas,
            self.noise_rates or noise_rates,
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
    found = {value for some in values for value in some or ()}
    return tuple(sorted(found, key=lambda value: value if isinstance(value, tuple) else (value,)))


def cells(table: Table, scale: Scale, selection: Selection) -> list[Cell]:
    """Return the cells of a table in its order: by α, by noise, by row."""
    chosen = selection.of(table, scale)
    assert chosen.methods and chosen.seeds, "filled in"
    rows, conditions = named(table.variants, chosen.methods), _conditions(table, scale, selection)
    found = []
    for alpha in dict.fromkeys(condition.alpha for condition in conditions):
        for condition in (condition for condition in conditions if condition.alpha == alpha):
            for variant in (row for row in rows if row.has_noise):
                found.append(_cell(table, scale, variant, condition, chosen.seeds))
        for variant in (row for row in rows if not row.has_noise):
            found.append(_cell(table, scale, variant, Condition(alpha, None), chosen.seeds))
    return found


def _conditions(table: Table, scale: Scale, selection: Selection) -> list[Condition]:
    """Return the chosen conditions; where a table lists them, values that are in none of them are refused."""
    chosen, listed = selection.of(table, scale), table.listed(scale)
    assert chosen.alphas and chosen.noise_rates, "filled in"
    if not listed:
        return [Condition(alpha, rate) for alpha in chosen.alphas for rate in chosen.noise_rates]
    found = [c for c in listed if c.alpha in chosen.alphas and c.noise_rate in chosen.noise_rates]
    alphas, rates = table.axes(scale)
    foreign = [f"α = {alpha:g}" for alpha in chosen.alphas if alpha not in alphas]
    foreign += [f"noise rate {noise_rate_text(rate)}" for rate in chosen.noise_rates if rate not in rates]
    if foreign or not found:
        what, has = foreign[0] if foreign else "such pair of them", "; ".join(condition.title for condition in listed)
        raise ConfigError(f"--alpha, --noise-rate: {table.name} at scale {scale.name} has no {what}. It has {has}.")
    return found


def _cell(table: Table, scale: Scale, variant: Variant, condition: Condition, seeds: Sequence[int]) -> Cell:
    own = {"data": condition.settings, "method": {"name": variant.method}}
    tree = merge(scale.settings, merge(own, variant.settings))
    recipe = scale.recipes[table.dataset]
    return Cell(variant, condition, tuple(resolve(recipe, tree | {"seed": seed}) for seed in seeds))
