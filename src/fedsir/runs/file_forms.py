"""What the JSON files of a run folder must hold to be believed; what else is in them is nobody's business here."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=0)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class FileForm(BaseModel):
    """Types are taken literally: a number in quotes, or true for 1, is a damaged file."""

    model_config = ConfigDict(strict=True, extra="allow")


class ResultFile(FileForm):
    """result.json. What has a default here was not written by every version."""

    method: str
    accuracy: Share
    accuracy_half_width: Share
    seconds: Seconds
    model_sha256: str
    identification_accuracy: Share | None
    noise_before: Share | None
    noise_after: Share | None
    dataset: str = ""
    seed: Count = 0
    rounds: Count = 0
    accuracy_spread: Share | None = None
    best_accuracy: Share | None = None
    last_10_accuracy: Share | None = None
    balanced_accuracy: Share | None = None
    clean_clients: list[str] | None = None
    noisy_clients: list[str] | None = None
    not_assessed: dict[str, str] | None = None
    two_groups: Literal["asked for", "found", "not found"] | None = None
    evidence: dict[str, Number | None] | None = None
    split_note: str | None = None
    noise_rates: dict[str, Number] | None = None
    noise_rate_error: dict[str, Number] | None = None
    bytes_up: Count = 0
    bytes_down: Count = 0
    n_relabelled: Count | None = None


class MetricsLine(FileForm):
    """A line of metrics.jsonl."""

    round: Count
    seconds: Seconds
    failures: dict[str, str]
    bytes_up: Count
    bytes_down: Count
    accuracy: Share | None = None
    noise_after: Share | None = None
    loss: Number | None = None
    loss_clean: Number | None = None
    loss_noisy: Number | None = None
    relabelled: Count | None = None
    noise_rate_by_client: dict[str, Number] | None = None
    noise_after_by_client: dict[str, Share] | None = None


class ModelForm(FileForm):
    """What a model takes and answers: in data.json, and in agreement.json of a run over real sites."""

    class_names: list[str]
    channels: Count | None = None
    image_size: Annotated[list[Count], Field(min_length=2, max_length=2)] | None = None
    mean: list[Number] | None = None
    std: list[Annotated[float, Field(gt=0, allow_inf_nan=False)]] | None = None


class DataFile(ModelForm):
    """data.json."""

    sha256: str
    images_sha256: str | None = None


class ProvenanceFile(FileForm):
    """provenance.json."""

    versions: dict[str, str]
    platform: str
    processor: str
    cores: Count
    device: str
    initial_weights: dict[str, Any]


class IdentificationFile(FileForm):
    """identification.json."""

    split: dict[str, Any]
