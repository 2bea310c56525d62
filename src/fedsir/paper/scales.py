"""How large a reproduction is: digits in a few rounds or in all, a fifth of CIFAR, all of it, the paper's protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedsir.runs.config import Tree


@dataclass(frozen=True)
class Scale:
    """Where the runs of a table start from.

    Attributes
    ----------
    recipes : data set of the paper → recipe
    settings : over the recipe
    seeds : run where none are named
    alphas, noise_rates : instead of the paper's, where none are named
    is_comparable : whether the runs are on the paper's data set, so that its numbers stand beside ours
    note : what sets it apart from the paper
    """

    name: str
    recipes: Mapping[str, str]
    note: str
    seeds: tuple[int, ...] = (42,)
    settings: Tree = field(default_factory=dict)
    alphas: tuple[float, ...] | None = None
    noise_rates: tuple[float, ...] | None = None
    is_comparable: bool = True


DIGITS = "digits"  # the recipe of scales that are not on the paper's data
ON_DIGITS = {"cifar10": DIGITS, "cifar100": DIGITS}
# Public images that only some methods need are held out for all: the same training images for everybody.
PUBLIC_HELD_OUT: Tree = {"data": {"public": "held-out"}}

SCALES = {
    scale.name: scale
    for scale in (
        Scale(
            "smoke",
            ON_DIGITS,
            "scikit-learn's digits and a few rounds: shows that everything runs, not how good a method is",
            seeds=(0,),
            settings={"rounds": 4, **PUBLIC_HELD_OUT},
            alphas=(2.0,),
            noise_rates=(0.8,),
            is_comparable=False,
        ),
        Scale(
            "digits",
            ON_DIGITS,
            "scikit-learn's digits by their own recipe, 20 rounds: other data than the paper's, seconds per run",
            seeds=(0, 1, 2, 3, 4),
            settings=PUBLIC_HELD_OUT,
            alphas=(2.0,),
            noise_rates=(0.3, 0.6, 0.9),
            is_comparable=False,
        ),
        Scale(
            "cpu",
            {"cifar10": "cifar10-cpu", "cifar100": "cifar100-cpu"},
            "10,000 of the 50,000 images and 20 of the 100 rounds: expect lower numbers than the paper's",
        ),
        Scale(
            "images",
            {"cifar10": "cifar10", "cifar100": "cifar100"},
            "all 50,000 images and 20 of the 100 rounds: expect somewhat lower numbers than the paper's",
            settings={"rounds": 20},
        ),
        Scale("paper", {"cifar10": "cifar10", "cifar100": "cifar100"}, "the paper's protocol"),
    )
}
