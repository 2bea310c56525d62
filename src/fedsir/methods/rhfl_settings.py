"""RHFL's settings."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedsir.methods.settings import MethodConfig, per_hundred


class RHFLConfig(MethodConfig):
    needs_public = True

    pretrain_epochs: int = per_hundred(
        40, least=1, ge=1, description="epochs on own data before a client first takes part; 40 per 100 rounds"
    )
    ce_weight: float = Field(0.1, ge=0, description="weight of the cross-entropy")
    reverse_weight: float = Field(1.0, ge=0, description="weight of the reverse cross-entropy")
    confidence_strength: float = Field(0.5, ge=0, description="how much a falling loss counts (β)")
    public_batch_size: int = Field(256, ge=2, description="public images per step")
    exchange: Literal["batch", "round"] = Field(
        "batch", description="answers are exchanged anew for every public batch, or once a round for all of them"
    )
    public_optimiser: Literal["fresh", "kept"] = Field(
        "fresh", description="a new Adam for every public batch as published, or one for a round's batches"
    )
    max_epochs: int = Field(
        10, ge=1, description="at most so many times method.epochs a round, for clients with few samples"
    )
