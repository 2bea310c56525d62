"""FedSIR: spectral client identification and relabelling, read top to bottom as the paper's Algorithm 1.

Stage I runs once in `start`; Stages II and III run in `round`. The mathematics is in `fedsir.stages`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator

from fedsir import methods, stages
from fedsir.errors import MethodError
from fedsir.methods.base import (
    DROPPED_OUT,
    Client,
    Federation,
    MethodConfig,
    Reply,
    ServerState,
    Settings,
    Weights,
    client_task,
)
from fedsir.methods.fedavg import aggregation_shares, average_by_samples, mean_loss
from fedsir.methods.reply_views import FieldOf, Joined
from fedsir.methods.spectral_identification import Identify, SpectralIdentification
from fedsir.methods.workload import FORWARD_SHARE

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fedsir.methods.local_training import Batch
    from fedsir.stages.relabel import References


class Relabel(Settings):
    """Stage II."""

    enabled: bool = Field(True, description="ablation switch")
    every: int | None = Field(None, ge=1, description="rounds between relabellings (R); 20 per 100 rounds")
    count_from: Literal["zero", "one"] = Field(
        "zero", description="relabel when r % R = 0 for r = 1, 2, … (zero) or when t % R = 0, t = r + 1 (one)"
    )
    rule: Literal["direction", "residual", "agreement"] = Field("agreement", description="which score decides")
    residual_rank: int = Field(12, ge=1, description="vectors of a residual subspace (L)")
    residual: Literal["after_block", "after_direction"] = Field(
        "after_block", description="where it begins: after the dominant block, or right after the direction"
    )
    block_ratio: float = Field(10.0, gt=0, description="dominant block: its σ sum to this many times the rest")
    weight: Literal["count_gap_share", "count"] = Field("count_gap_share", description="reliability w_{k,c}")
    min_samples: int = Field(100, ge=1, description="samples of a class a client needs to be averaged in")
    min_strength: float = Field(0.03, ge=0, description="λ₁-λ₂ below which one client speaks alone")
    spectra_from: Literal["clean_reference", "own_model"] = Field(
        "clean_reference",
        description="model behind clean clients' spectra: last round's clean average, or own",
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
    ramp_begin: float | None = Field(None, ge=0, description="round r where the ramp begins; 2 per 100 rounds")
    ramp_end: float | None = Field(None, ge=0, description="round r where it ends; 49 per 100; ≤ begin = no ramp")
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


class FedSIRConfig(MethodConfig):
    preset: Literal["authors", "paper"] = Field("authors", description="sets every field where code and paper differ")
    identify: Identify = Identify()
    relabel: Relabel = Relabel()
    la: LogitAdjustment = LogitAdjustment()
    kd: Distillation = Distillation()
    daagg: DistanceAware = DistanceAware()

    @model_validator(mode="before")
    @classmethod
    def _fill_from_preset(cls, values: Any) -> Any:
        if not isinstance(values, dict) or values.get("preset") != "paper":
            return values
        merged = {}
        for group, preset in PAPER.items():
            said = values.get(group, {})
            if isinstance(said, Settings):  # from Python: what was said in it, not its defaults
                said = said.model_dump(exclude_unset=True)
            merged[group] = preset | said if isinstance(said, dict) else said
        return values | merged

    def scaled_to(self, rounds: int) -> Self:
        every, begin, end = self.relabel.every, self.kd.ramp_begin, self.kd.ramp_end
        relabel = self.relabel.model_copy(update={"every": max(1, round(0.2 * rounds)) if every is None else every})
        ramp = {
            "ramp_begin": 0.02 * rounds if begin is None else begin,
            "ramp_end": 0.49 * rounds if end is None else end,
        }
        return self.model_copy(update={"relabel": relabel, "kd": self.kd.model_copy(update=ramp)})


@dataclass(frozen=True)
class FedSIRState(ServerState):
    clean_reference: Weights = field(default_factory=dict)  # average of the clean clients' last models


class FedSIR(SpectralIdentification):
    name = "fedsir"
    summary = "finds noisy clients by their class spectra, repairs their labels, trains noise-aware"
    Config = FedSIRConfig
    State = FedSIRState
    config: FedSIRConfig

    def start(self, fed: Federation, model: Weights) -> FedSIRState:
        """Stage I: every client sends two numbers; a mixture of two Gaussians splits clean from noisy."""
        split, replies = self.find_noisy_clients(fed, model)
        trained = {k: replies[k] for k in split.clean if "model" in replies[k]}
        start_model = average_by_samples(trained) if trained else model
        fed.record(loss=mean_loss(trained))
        return FedSIRState(model=start_model, split=split, clean_reference=start_model)

    def round(self, t: int, state: FedSIRState, fed: Federation) -> FedSIRState:
        """Stages II and III: clean clients train and teach, noisy clients relabel and train, the server averages."""
        assert state.split is not None, "Stage I sets it"
        trusted, untrusted = frozenset(state.split.clean), frozenset(state.split.untrusted)
        clean = [k for k in fed.participants if k in trusted]
        noisy = [k for k in fed.participants if k in untrusted]
        relabels_now = self.relabels_in(t)
        reference = state.clean_reference if relabels_now else None
        from_own = self.config.relabel.spectra_from == "own_model"
        from_clean = fed.ask(
            "train_clean",
            clean,
            model=state.model,
            wants_spectra=relabels_now,
            spectra_model=None if from_own else reference,
        )
        broken = [k for k in clean if fed.failures.get(k, DROPPED_OUT) != DROPPED_OUT]
        if broken and not from_clean:
            raise MethodError(
                f"Round {t}: every clean client failed, and noisy ones alone would spoil the model; "
                f"client {broken[0]}: {fed.failures[broken[0]]}."
            )
        references = self.gather_references(from_clean, fed) if relabels_now else None
        from_noisy = fed.ask(
            "train_noisy",
            noisy,
            model=state.model,
            kd_weight=self.kd_weight(t),
            references=None if references is None else vars(references),
            clean_reference=None if references is None else reference,
        )
        replies = Joined(fed.participants, from_clean, from_noisy)
        daagg = self.config.daagg
        shares = aggregation_shares(
            replies, state.split.clean, is_distance_aware=daagg.enabled, distance=daagg.distance
        )
        fed.record(
            loss=mean_loss(replies),
            loss_clean=mean_loss(from_clean),
            loss_noisy=mean_loss(from_noisy),
            kd_weight=self.kd_weight(t),
            has_relabelled=references is not None,
            relabelled=sum(reply["n_corrected"] for reply in from_noisy.values()),
            undecided=sum(reply["n_undecided"] for reply in from_noisy.values()),
            shares=shares,
        )
        models = FieldOf("model", replies)
        return FedSIRState(
            model=stages.train.average_models(models.values(), list(shares.values())) if replies else state.model,
            split=state.split,
            clean_reference=average_by_samples(from_clean) if from_clean else state.clean_reference,
        )

    def equivalent_epochs(self, rounds: int) -> float:
        teacher_forward = 0.2 if self.config.kd.enabled else 0.0
        n_relabellings = sum(self.relabels_in(t) for t in range(1, rounds + 1))
        return rounds * self.config.epochs * (1 + teacher_forward) + n_relabellings * FORWARD_SHARE

    def relabels_in(self, t: int) -> bool:
        """Whether round t = 1, 2, … relabels."""
        config = self.config.relabel
        assert config.every is not None, "scaled_to fills it in"
        r = t - 1 if config.count_from == "zero" else t
        return bool(config.enabled and r > 0 and r % config.every == 0)

    def kd_weight(self, t: int) -> float:
        kd = self.config.kd
        if not kd.enabled:
            return 0.0
        assert kd.ramp_begin is not None and kd.ramp_end is not None, "scaled_to fills them in"
        return stages.train.kd_ramp(t - 1, peak=kd.weight, begin=kd.ramp_begin, end=kd.ramp_end)

    def gather_references(self, from_clean: Mapping[str, Reply], fed: Federation) -> References | None:
        """Average the clean clients' spectra, leaving out answers that are not what they claim; None without any."""
        received = {k: methods.local_training.as_arrays(reply["spectra"]) for k, reply in from_clean.items()}
        spectra_by_client, faults = stages.relabel.usable_spectra(received)
        for k, fault in faults.items():
            fed.reject(k, f"its spectra are unusable: {fault}")
        if not spectra_by_client:
            return None
        config = self.config.relabel
        return stages.relabel.aggregate_references(
            spectra_by_client,
            weight=config.weight,
            min_samples=config.min_samples,
            min_strength=config.min_strength,
        )

    # ------------------------------------------------------------------ on the client

    @client_task
    def train_clean(self, client: Client, model: Weights, wants_spectra: bool, spectra_model: Weights | None) -> Reply:
        """Train on the given labels with logit adjustment; on request send class spectra (Algorithm 2)."""
        adjustment = self.adjustment(client)

        def loss_of(module: nn.Module, batch: Batch) -> Tensor:
            return stages.train.la_loss(module(batch.images), batch.labels, adjustment)

        module = client.module(model)
        loss = methods.local_training.train_with(client, module, loss_of, self.config)
        reply = methods.local_training.trained_reply(client, module, loss)
        if wants_spectra:
            config = self.config.relabel
            behind = module if spectra_model is None else client.module(spectra_model)
            collected = methods.local_training.class_features_of(client, behind)
            spectra = stages.relabel.extract_spectra(
                collected, config.residual_rank, config.residual, config.block_ratio
            )
            reply["spectra"] = vars(spectra)
        return reply

    @client_task
    def train_noisy(
        self,
        client: Client,
        model: Weights,
        kd_weight: float,
        references: dict[str, Tensor] | None,
        clean_reference: Weights | None,
    ) -> Reply:
        """Relabel when references came (Algorithm 3), then train on the corrected labels, distilling the teacher."""
        if references is not None and clean_reference is not None:
            corrected, is_undecided = methods.local_training.relabel_client(
                client,
                client.module(clean_reference),
                stages.relabel.References(**methods.local_training.as_arrays(references)),
                self.config.relabel.rule,
            )
            client.state |= {"corrected_labels": corrected, "is_undecided": is_undecided}
        undecided = client.state.get("is_undecided")
        is_distilled = None if undecided is None or self.config.kd.on == "all" else undecided.to(client.device)
        adjustment = self.adjustment(client)
        teacher = client.module(model) if kd_weight > 0 else None

        def loss_of(module: nn.Module, batch: Batch) -> Tensor:
            logits = module(batch.images)
            if teacher is None:
                return stages.train.la_loss(logits, batch.labels, adjustment)
            return stages.train.la_kd_loss(
                logits,
                methods.local_training.teacher_logits(teacher, batch.images),
                batch.labels,
                adjustment,
                weight=kd_weight,
                temperature=self.config.kd.temperature,
                is_distilled=None if is_distilled is None else is_distilled[batch.index],
            )

        module = client.module(model)
        loss = methods.local_training.train_with(client, module, loss_of, self.config)
        return methods.local_training.trained_reply(client, module, loss) | {
            "n_corrected": client.n_corrected,
            "n_undecided": 0 if undecided is None else int(undecided.sum()),
        }

    def adjustment(self, client: Client) -> Tensor:
        """Return the logit adjustment m of this client, (C,); zeros when switched off."""
        config = self.config.la
        labels = client.labels if config.prior == "corrected" else client.data.labels
        prior = stages.train.class_prior(labels, client.data.n_classes)
        return stages.train.logit_adjustment(prior, config.strength if config.enabled else 0.0).to(client.device)
