"""The settings of the methods that FedSIR is compared with. Needs no torch."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, field_validator

from fedsir.methods.settings import MethodConfig, Settings, left_open, per_hundred


class FedProxConfig(MethodConfig):
    proximal_weight: float = Field(0.2, ge=0, description="how strongly clients are held back (μ); 0 = FedAvg")
    proximal_norm: Literal["squared", "plain"] = Field(
        "squared", description="½ μ ‖w - w_g‖² over all parameters, or ½ μ Σ ‖w - w_g‖ tensor by tensor"
    )


class RoFLConfig(MethodConfig):
    forget_rate: float = Field(0.2, ge=0, lt=1, description="share of a batch with the largest loss left out (F)")
    forget_ramp: float = per_hundred(
        10, ge=0, description="rounds over which that share grows from 0 (T_k); 10 per 100 rounds"
    )
    pseudo_label_from: float = per_hundred(
        10, ge=0, description="round r from which pseudo-labels are used (T_pl); 10 per 100 rounds"
    )
    central_weight: float = Field(1.0, ge=0, description="weight of the distance to centroids (λ_cen)")
    central_gradient: bool = Field(
        False, description="whether that distance has a gradient: the published code has none, the paper has"
    )
    entropy_weight: float = Field(0.8, ge=0, description="weight of the entropy, which is minimised (λ_e)")
    average: Literal["clients", "samples"] = Field("clients", description="models averaged alike, or by sample count")


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


class View(Settings):
    """The second view of an image."""

    of: Literal["image", "normalised"] = Field(
        "image",
        description="what the colour changes are applied to, each image its own draw; or as published: the normalised "
        "tensor, one draw per batch, negative values lost",
    )
    strength: float = Field(0.8, ge=0, le=1, description="brightness, contrast and saturation change by up to this")
    hue: float = Field(0.2, ge=0, le=0.5, description="the hue turns by up to this; a whole turn is 1")
    jitter_chance: float = Field(0.8, ge=0, le=1, description="chance of a change of colours")
    grey_chance: float = Field(0.2, ge=0, le=1, description="chance of a greyscale image")


class FedLSRConfig(MethodConfig):
    double_softmax: bool = Field(
        True, description="classification and entropy put probabilities through a softmax again, as published"
    )
    mix_temperature: float = Field(0.5, gt=0, description="sharpens the mixed prediction (T)")
    sharpness: float = Field(3.0, gt=0, description="sharpens the predictions that are compared (1 / T_d)")
    consistency_weight: float = Field(0.4, ge=0, description="weight of their disagreement at its peak (γ)")
    consistency_mean: Literal["elements", "samples"] = Field(
        "elements", description="mean over samples and classes, as published, or over samples"
    )
    warm_up: float = per_hundred(20, ge=0, description="rounds over which γ grows from 0 (t_w); 20 per 100 rounds")
    entropy_weight: float = Field(0.3, ge=0, description="weight of the entropy, which is minimised (λ_e); 0 = paper")
    view: View = View()


class FedCorrConfig(MethodConfig):
    iterations: int = per_hundred(
        5,
        least=1,
        ge=1,
        description="rounds of pre-processing, each of which visits every client (T₁); 5 per 100",
    )
    fine_tuning_rounds: int = left_open(
        ge=0, description="rounds on nearly clean clients alone (T₂); 50 per 100; the rest is usual training"
    )
    visits_at_once: int = Field(1, ge=1, description="clients that train from one model in pre-processing (frac₁ · K)")
    mixup: bool = Field(True, description="train on mixed pairs of images")
    proximal_weight: float = Field(5.0, ge=0, description="β: keeps noisy clients near the global model; times μ̂")
    proximal_norm: Literal["plain", "squared"] = Field(
        "plain", description="‖w - w_global‖ as published, or its square as in the paper"
    )
    n_neighbours: int = Field(20, ge=2, description="neighbours behind an intrinsic dimension (k)")
    double_softmax: bool = Field(
        True, description="sample losses put probabilities through a softmax again, as published"
    )
    accumulate_losses: bool = Field(
        False, description="sample losses summed over iterations as in the paper, or of the last one as published"
    )
    relabel_share: float = Field(0.5, ge=0, le=1, description="of the samples thought wrong, those to correct (π)")
    confidence: float = Field(0.5, ge=0, lt=1, description="a label is replaced where the prediction is surer (θ)")
    clean_level: float = Field(
        0.1, ge=0, le=1, description="clients up to this noise level μ̂ take part in fine-tuning (κ)"
    )

    def resolved(self, rounds: int) -> Self:
        filled = super().resolved(rounds)
        if self.fine_tuning_rounds is not None:
            return filled
        # Half of the rounds, but at least one round of usual training is left.
        fine_tuning = max(0, min(max(1, round(0.5 * rounds)), rounds - filled.iterations - 1))
        return filled.model_copy(update={"fine_tuning_rounds": fine_tuning})


class FedNedConfig(MethodConfig):
    needs_public = True

    warm_up: int = per_hundred(10, ge=0, description="rounds of plain averaging first; 10 per 100 rounds")
    threshold: float = Field(
        1.2, ge=1, description="times the mean uncertainty that makes a client extremely noisy (λ·K: λ = 0.12, K = 10)"
    )
    dropout: float = Field(0.3, ge=0, lt=1, description="share of features left out when uncertainty is measured")
    dropout_passes: int = Field(10, ge=1, description="passes with other features left out")
    public_batch_size: int = Field(128, ge=2, description="public images to measure on, and per step of distillation")
    confidence: float = Field(0.95, ge=0, lt=1, description="an extremely noisy client trusts surer pseudo-labels")
    temperature: float = Field(2.0, gt=0, description="of pseudo-labels and of the student (T)")
    negative_distillation: bool = Field(
        True, description="as in the paper; off is what the published code does: no distillation, one model each"
    )
    distillation_steps: int = Field(100, ge=1, description="steps of negative distillation a round")
    distillation_lr: float = Field(3e-5, gt=0, description="Adam's learning rate in it")
    reciprocal_floor: float = Field(0.1, gt=0, description="logits of a bad teacher count as at least so far from 0")


# ---------------------------------------------------------------- FedNoRo and FedELC


class Identify(Settings):
    """When and how clients are told apart."""

    after: int | float = left_open(
        ge=0,
        description="rounds of warm-up before it (s₁), below 1 as a share; per 100 rounds 10 in FedNoRo, 20 in FedELC",
    )
    images: Literal["augmented", "plain"] = Field("augmented", description="images behind the losses")

    @field_validator("after")
    @classmethod
    def _is_whole_or_a_share(cls, after: float) -> float:
        if after >= 1 and not float(after).is_integer():
            raise ValueError("must be a whole number of rounds, or a share of them below 1")
        return after


class LogitAdjustment(Settings):
    """Logit adjustment of clients' cross-entropy."""

    strength: float = Field(1.0, ge=0, description="τ of the adjustment; 0 = plain cross-entropy")


class DistanceAware(Settings):
    """Distance-aware aggregation after the warm-up."""

    enabled: bool = Field(True, description="ablation switch; off = weights by sample count")


class LossIdentificationConfig(MethodConfig):
    warm_up_share: ClassVar[float]
    identify: Identify = Identify()
    la: LogitAdjustment = LogitAdjustment()
    daagg: DistanceAware = DistanceAware()

    def resolved(self, rounds: int) -> Self:
        filled = super().resolved(rounds)
        after = self.warm_up_share if self.identify.after is None else self.identify.after
        after = max(1, round(after * rounds)) if 0 < after < 1 else int(after)
        return filled.model_copy(update={"identify": filled.identify.model_copy(update={"after": after})})


class Distillation(Settings):
    """Distillation on noisy clients."""

    weight: float = Field(0.8, ge=0, le=1, description="λ at its peak; 0 = no distillation")
    temperature: float = Field(0.8, gt=0, description="τ of the teacher")
    ramp_begin: float = left_open(ge=0, description="round r (from 0) where the ramp begins; where the warm-up ends")
    ramp_end: float = left_open(
        ge=0, description="round r where it ends; 49 of 100, 39/90 of those after the warm-up; ≤ begin = no ramp"
    )


class FedNoRoConfig(LossIdentificationConfig):
    warm_up_share = 0.1
    kd: Distillation = Distillation()

    def resolved(self, rounds: int) -> Self:
        filled = super().resolved(rounds)
        after, begin, end = filled.identify.after, self.kd.ramp_begin, self.kd.ramp_end
        ramp = {
            "ramp_begin": after if begin is None else begin,
            "ramp_end": after + max(0, rounds - after) * 39 / 90 if end is None else end,
        }
        return filled.model_copy(update={"kd": self.kd.model_copy(update=ramp)})


class LabelCorrection(Settings):
    """Label correction on noisy clients."""

    lr: float = Field(1000.0, ge=0, description="learning rate of the label logits (λ), for batches of 64")
    compatibility: float = Field(0.5, ge=0, description="pull towards the given label (α)")
    entropy: float = Field(0.2, ge=0, description="pull towards confident predictions (β)")
    scale: float = Field(10.0, gt=0, description="label logit of a certain label (K)")
    predict: Literal["plain", "training"] = Field(
        "plain",
        description="predictions that labels are merged with: plain images in evaluation mode, or as in training",
    )


class FedELCConfig(LossIdentificationConfig):
    warm_up_share = 0.2
    labels: LabelCorrection = LabelCorrection()
