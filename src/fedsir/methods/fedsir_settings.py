"""FedSIR's settings, what its presets say, and Stage I's part, which Pruning has too. Needs no torch."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from fedsir.methods.settings import MethodConfig, Settings, left_open, per_hundred


class Identify(Settings):
    """Stage I."""

    epochs: int = Field(5, ge=0, description="local epochs before the spectra (E₁); 0 = untouched initial model")
    lr: float = Field(5e-5, gt=0, description="Adam's learning rate")
    weight_decay: float = Field(5e-2, ge=0, description="L2 penalty inside Adam")
    min_class_samples: int = Field(20, ge=1, description="classes with fewer samples do not count")
    features: Literal["augmented", "plain"] = Field("augmented", description="images behind the spectra")
    split: Literal["always", "auto", "pairwise", "rates"] = Field(
        "always",
        description="two groups always, or only where evidence speaks for them: that of two numbers per client (auto), "
        "or of every two classes (pairwise); or by each client's noise rate",
    )
    judged_by: Literal["initial", "trained"] | None = left_open(
        description="with split = rates, the model whose features count: the initial one, before anybody trains, or "
        "the average of what clients trained; initial where weights are pretrained"
    )


class SpectralConfig(MethodConfig):
    min_class_samples: int = Field(
        1, ge=1, description="classes with fewer samples leave a client neither as direction, subspace nor sum"
    )
    identify: Identify = Identify()

    def fitted(self, *, is_pretrained: bool) -> Self:
        if self.identify.judged_by is not None:
            return self
        judged_by = "initial" if is_pretrained else "trained"
        return self.model_copy(update={"identify": self.identify.model_copy(update={"judged_by": judged_by})})

    @property
    def judges_first(self) -> bool:
        """Whether clients are judged before anybody trains."""
        return self.identify.split == "rates" and (self.identify.judged_by == "initial" or self.identify.epochs == 0)

    @property
    def trains_first(self) -> bool:
        """Whether everybody trains before Stage I looks at them."""
        return self.identify.epochs > 0 and not self.judges_first


class Relabel(Settings):
    """Stage II."""

    enabled: bool = Field(True, description="ablation switch")
    every: int = per_hundred(20, least=1, ge=1, description="rounds between relabellings (R); 20 per 100 rounds")
    count_from: Literal["zero", "one", "first"] = Field(
        "zero",
        description="relabel when r % R = 0 for r = 1, 2, … (zero), when t % R = 0, t = r + 1 (one), or in rounds "
        "t = 1, 1 + R, 1 + 2R, … (first)",
    )
    rule: Literal["direction", "residual", "agreement", "bayes"] = Field(
        "agreement", description="which spectral score decides; or bayes, which weighs features and given label"
    )
    targets: Literal["hard", "soft"] = Field(
        "hard", description="what a noisy client trains on: the corrected label, or with bayes its probabilities"
    )
    evidence: Literal["round", "likeliest"] = Field(
        "round",
        description="features behind bayes: the round's; or, where the initial model has judged, its features, the "
        "round's or both, whichever makes given labels likeliest",
    )
    residual_rank: int = Field(12, ge=1, description="vectors of a residual subspace (L)")
    residual: Literal["after_block", "after_direction"] = Field(
        "after_block", description="where it begins: after the dominant block, or right after the direction"
    )
    block_ratio: float = Field(10.0, gt=0, description="dominant block: its σ sum to this many times the rest")
    weight: Literal["count_gap_share", "count"] = Field("count_gap_share", description="reliability w_{k,c}")
    min_samples: int = Field(100, ge=1, description="samples of a class a client needs to be averaged in")
    min_strength: float = Field(0.03, ge=0, description="λ₁-λ₂ below which one client speaks alone")
    spectra_from: Literal["clean_reference", "own_model", "global_model"] = Field(
        "clean_reference",
        description="model whose features the references come from: last round's clean average, the client's own, or "
        "the model that the round begins with",
    )


class LogitAdjustment(Settings):
    """Stage III: logit adjustment."""

    enabled: bool = Field(True, description="ablation switch")
    strength: float = Field(1.0, gt=0, description="β in the paper")
    prior: Literal["given", "corrected"] = Field("given", description="labels whose counts give the prior")


class Distillation(Settings):
    """Stage III: distillation on noisy clients."""

    enabled: bool = Field(True, description="ablation switch")
    weight: float = Field(0.2, ge=0, le=1, description="w_KD at its peak")
    temperature: float = Field(0.8, gt=0, description="τ of the teacher")
    ramp_begin: float = per_hundred(2, ge=0, description="round r where the ramp begins; 2 per 100 rounds")
    ramp_end: float = per_hundred(49, ge=0, description="round r where it ends; 49 per 100; ≤ begin = no ramp")
    on: Literal["undecided", "all"] = Field(
        "undecided",
        description="samples to distil once labels were corrected: where the scores disagree, or all",
    )


class DistanceAware(Settings):
    """Stage III: distance-aware aggregation."""

    enabled: bool = Field(True, description="ablation switch; off = weights by sample count")
    distance: Literal["normalised", "raw"] = Field(
        "normalised", description="Σ of per-tensor norms over its maximum, or the plain norm"
    )
    weigh_by: Literal["distance", "noise_left"] = Field(
        "distance",
        description="what costs a noisy client weight: its distance, or the share of its labels that is still wrong",
    )


# What the paper says where the authors' code, our default, does otherwise (docs/deviations.md).
PAPER: dict[str, dict[str, Any]] = {
    "identify": {"weight_decay": 2e-2, "min_class_samples": 1, "features": "plain"},
    "relabel": {
        "count_from": "one",
        "residual": "after_direction",
        "weight": "count",
        "min_samples": 1,
        "min_strength": 0.0,
        "spectra_from": "own_model",
    },
    "la": {"prior": "corrected"},
    "kd": {"ramp_begin": 0.0, "ramp_end": 0.0, "on": "all"},
    "daagg": {"distance": "raw"},
}


# What `plus` does otherwise than the authors (docs/plus.md).
PLUS: dict[str, dict[str, Any]] = {
    "identify": {"split": "rates"},
    "relabel": {
        "every": 2,
        "count_from": "first",
        "rule": "bayes",
        "spectra_from": "global_model",
        "targets": "soft",
        "evidence": "likeliest",
    },
    "la": {"prior": "corrected"},
    "kd": {"enabled": False},
    "daagg": {"weigh_by": "noise_left"},
}


class FedSIRConfig(SpectralConfig):
    presets = {"authors": {}, "paper": PAPER, "plus": PLUS}  # noqa: RUF012 - a class variable, declared in MethodConfig

    preset: Literal["authors", "paper", "plus"] = Field(
        "authors",
        description="sets every field where code and paper differ; plus sets ours, which goes beyond both",
    )
    share: Literal["all", "minimal"] = Field(
        "all",
        description="what clients send: also what only tells how training goes (all), or what the server computes with",
    )
    relabel: Relabel = Relabel()
    la: LogitAdjustment = LogitAdjustment()
    kd: Distillation = Distillation()
    daagg: DistanceAware = DistanceAware()

    @property
    def stays(self) -> dict[str, tuple[str, ...]]:
        """Client task → fields of its reply that stay with the client; docs/privacy.md shows it."""
        if self.share == "all":
            return {}
        # Split by noise rates, clients are compared under the mean of all their models.
        needs_all_models = self.identify.split == "rates" and self.trains_first
        needs_doubt = self.daagg.enabled and self.daagg.weigh_by == "noise_left"
        return {
            "identify": ("loss",) if needs_all_models else ("loss", "model"),
            "hand_over": ("loss",),
            "warm_up": ("loss",),
            "train_clean": ("loss",),
            "train_noisy": (
                *("loss", "n_corrected", "n_undecided", "noise_rate"),
                *(() if needs_doubt else ("doubt",)),
            ),
        }

    @property
    def hands_over(self) -> bool:
        """Whether clients keep the model of Stage I until the server knows that they are clean."""
        return self.trains_first and "model" in self.stays.get("identify", ())

    @property
    def warms_up(self) -> bool:
        """Whether clean clients train before round 1, once it is known who is clean."""
        return self.identify.epochs > 0 and self.judges_first

    @property
    def sent_residual_rank(self) -> int:
        """Vectors of each residual subspace that clean clients send; 0 where nobody looks at them."""
        tells_undecided = self.kd.enabled and self.kd.on == "undecided"
        is_used = self.relabel.rule in ("residual", "agreement") or tells_undecided
        return self.relabel.residual_rank if is_used or self.share == "all" else 0

    @model_validator(mode="before")
    @classmethod
    def _fill_from_preset(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        merged = {}
        for group, preset in cls.presets.get(values.get("preset", "authors"), {}).items():
            said = values.get(group, {})
            if isinstance(said, Settings):  # from Python: what was said in it, not its defaults
                said = said.model_dump(exclude_unset=True)
            merged[group] = preset | said if isinstance(said, dict) else said
        return values | merged
