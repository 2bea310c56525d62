"""How many labels of a noisy client go wrong: one share for all of them, or a range that each draws its own from."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from fedsir.randomness import KeyedRandom

NoiseRate: TypeAlias = float | tuple[float, float]  # for all noisy clients, or (lowest, highest)


def parse_noise_rate(value: object) -> NoiseRate:
    """Return a share in [0, 1], or a range of two such shares; a command line writes the range as 0.1-0.9."""
    ends = value if isinstance(value, list | tuple) and len(value) == 2 else [value]
    if isinstance(value, str) and _share(value) is None:  # 1e-3 is one
        ends = value.split("-")
    rates = [rate for end in ends if (rate := _share(end)) is not None]
    if len(rates) == len(ends) == 1:
        return rates[0]
    if len(rates) == len(ends) == 2 and rates[0] < rates[1]:
        return rates[0], rates[1]
    raise ValueError(
        "give a share from 0 to 1, or the lowest and the highest of the shares that noisy clients draw, as in 0.1-0.9 "
        "or [0.1, 0.9]"
    )


def _share(value: object) -> float | None:
    """Return a number in [0, 1], also from text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        rate = float(value)
    except (ValueError, OverflowError):
        return None
    return rate if 0 <= rate <= 1 else None


def noise_rate_text(rate: NoiseRate) -> str:
    """Return a rate as a command line takes it: 0.6, or 0.1-0.9."""
    return "-".join(f"{share:g}" for share in (rate if isinstance(rate, tuple) else (rate,)))


def rate_of_client(rate: NoiseRate, random: KeyedRandom) -> float:
    """Return the rate of one noisy client: that of all, or one drawn uniformly from the range by its own stream."""
    return float(random.for_numpy().uniform(*rate)) if isinstance(rate, tuple) else rate
