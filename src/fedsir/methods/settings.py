"""What every method's settings are made of. Needs no torch: settings are shown and checked without loading any.

A schedule that a user leaves open follows the number of rounds: `per_hundred` declares it, `resolved` fills it in. Only
resolved settings reach a method, so the field's type is a plain number.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

OptimizerName = Literal["adam", "adamw", "sgd"]


class Settings(BaseModel):
    """A frozen group of settings that rejects unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def resolved(self, rounds: int) -> Self:
        """Return the settings with every schedule that was left open filled in for a run of `rounds` rounds."""
        filled: dict[str, Any] = {}
        for name, field in type(self).model_fields.items():
            value, schedule = getattr(self, name), field.json_schema_extra
            if isinstance(value, Settings):
                filled[name] = value.resolved(rounds)
            elif value is None and isinstance(schedule, dict) and "per_hundred" in schedule:
                share: Any = schedule["per_hundred"]
                least: Any = schedule["least"]
                exact = share / 100 * rounds
                filled[name] = max(least, round(exact)) if field.annotation is int else exact
        return self.model_copy(update=filled)


def per_hundred(share: float, *, least: int = 0, **field: Any) -> Any:
    """Declare a number of rounds: `share` of every hundred unless somebody sets it, whole ones at least `least`."""
    return Field(default=None, json_schema_extra={"per_hundred": share, "least": least}, **field)


def left_open(**field: Any) -> Any:
    """Declare a setting that a method's own `resolved` fills in."""
    return Field(default=None, **field)


def risen(t: int, over: float) -> float:
    """Return how far a weight has risen in round t = 1, 2, … that grows over so many rounds from 0 to 1."""
    return min(1.0, (t - 1) / over) if over > 0 else 1.0


class MethodConfig(Settings):
    """The method's name and the settings of local training that every method has."""

    needs_public: ClassVar[bool] = False  # whether the method cannot do without data.public
    presets: ClassVar[dict[str, dict[str, Any]]] = {}  # what each value of a field `preset` sets

    name: str = Field(description="which method")
    epochs: int = Field(1, ge=1, description="local epochs per round (E in the paper)")
    batch_size: int = Field(64, ge=2, description="samples per step (B)")
    optimizer: OptimizerName = Field("adam", description="adam, adamw (decoupled weight decay), or sgd")
    lr: float = Field(3e-4, gt=0, description="learning rate")
    momentum: float = Field(0.9, ge=0, lt=1, description="of sgd; adam and adamw have moments of their own")
    weight_decay: float = Field(5e-4, ge=0, description="L2 penalty; inside the gradient, except with adamw")

    def fitted(self, *, is_pretrained: bool) -> Self:
        """Return the settings with what depends on the first model filled in where it was left open."""
        del is_pretrained  # most methods train any model in the same way
        return self
