"""Under which conditions the runs of a block of a table are made: how even the split, which noise, how much."""

from __future__ import annotations

from dataclasses import dataclass

from fedsir.data.noise_rate import NoiseRate, noise_rate_text
from fedsir.runs.config import Tree

SYMMETRIC = "symmetric"


@dataclass(frozen=True)
class Condition:
    """A split and its noise.

    Attributes
    ----------
    noise_rate : of all noisy clients, or (lowest, highest) of those that they draw; None without noise
    noise : kind of noise
    """

    alpha: float
    noise_rate: NoiseRate | None
    noise: str = SYMMETRIC

    @property
    def settings(self) -> Tree:
        """Return what it says of data; the published draw (data.noise_draw) is of symmetric noise of one rate."""
        data: Tree = {"alpha": self.alpha}
        if self.noise_rate is not None:
            data["noise_rate"] = self.noise_rate
        if not self.is_plain:
            data |= {"noise": self.noise, "noise_draw": "keyed"}
        return data

    @property
    def is_plain(self) -> bool:
        """Whether it is symmetric noise of one rate, as in the paper, or none."""
        return self.noise == SYMMETRIC and not isinstance(self.noise_rate, tuple)

    @property
    def title(self) -> str:
        """Return it as a heading."""
        kind = "" if self.noise == SYMMETRIC else f"{self.noise} "
        if isinstance(self.noise_rate, tuple):
            lowest, highest = self.noise_rate
            return f"α = {self.alpha:g}, {kind}noise rates {lowest:g} to {highest:g}"
        return f"α = {self.alpha:g}, {kind}noise rate {self.noise_rate or 0:g}"

    @property
    def word(self) -> str:
        """Return it as a part of a file's name."""
        kind = "" if self.noise == SYMMETRIC else f"-{self.noise}"
        return f"a{self.alpha:g}{kind}-n{noise_rate_text(self.noise_rate or 0.0)}"

    @property
    def percent(self) -> str:
        """Return the noise alone, in percent, for the head of a LaTeX column."""
        rates = self.noise_rate if isinstance(self.noise_rate, tuple) else (self.noise_rate or 0.0,)
        kind = "" if self.noise == SYMMETRIC else f"{self.noise} "
        return kind + "--".join(f"{100 * rate:g}" for rate in rates) + r"\%"

    @property
    def order(self) -> tuple[bool, str, bool, NoiseRate | None]:
        """Return what to sort the noise of columns by: symmetric of one rate first."""
        return self.noise != SYMMETRIC, self.noise, isinstance(self.noise_rate, tuple), self.noise_rate
