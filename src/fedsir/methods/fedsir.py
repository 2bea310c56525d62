"""FedSIR: spectral client identification and relabelling, read top to bottom as the paper's Algorithm 1.

Stage I runs once in `start`; Stages II and III run in `round`. The mathematics is in `fedsir.stages`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from torch import Tensor, nn

from fedsir.errors import MethodError
from fedsir.methods.averaging import aggregation_shares, average_by_samples, average_by_shares, mean_loss
from fedsir.methods.base import DROPPED_OUT, Client, Federation, ServerState, client_task
from fedsir.methods.fedsir_settings import FedSIRConfig
from fedsir.methods.local_training import Batch, class_features_of, relabel_client, teacher_logits, train_with
from fedsir.methods.replies import ClientId, FieldOf, Joined, Trained, Weights
from fedsir.methods.spectral_identification import SpectralIdentification
from fedsir.models.weights import weights_of
from fedsir.stages.relabel import ClassSpectra, References, aggregate_references, extract_spectra, fault_of
from fedsir.stages.train import class_prior, kd_ramp, la_kd_loss, la_loss, logit_adjustment


@dataclass(frozen=True)
class FedSIRState(ServerState):
    clean_reference: Weights = field(default_factory=dict)  # average of the clean clients' last models


@dataclass(frozen=True)
class Taught(Trained):
    """A clean client's model and, in relabelling rounds, what its classes look like.

    spectra : what each class looks like, in rounds that relabel; none in others
    """

    spectra: ClassSpectra | None

    def fault(self) -> str | None:
        return None if self.spectra is None else fault_of(self.spectra)


@dataclass(frozen=True)
class Repaired(Trained):
    """A noisy client's model, and how far its labels were corrected.

    n_corrected : how many of its labels are not the given ones
    n_undecided : for how many samples the two scores name different classes
    """

    n_corrected: int
    n_undecided: int


class FedSIR(SpectralIdentification[FedSIRConfig, FedSIRState]):
    name = "fedsir"
    Config = FedSIRConfig
    State = FedSIRState

    def start(self, fed: Federation, model: Weights) -> FedSIRState:
        """Stage I: every client sends two numbers; a mixture of two Gaussians splits clean from noisy."""
        split, replies = self.find_noisy_clients(fed, model)
        # With identify.epochs = 0 nobody has trained.
        trained = cast(Mapping[ClientId, Trained], Joined(split.clean, replies) if self.config.identify.epochs else {})
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
            self.train_clean,
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
            self.train_noisy,
            noisy,
            model=state.model,
            kd_weight=self.kd_weight(t),
            references=None if references is None else vars(references),
            clean_reference=None if references is None else reference,
        )
        replies: Joined[Trained] = Joined(fed.participants, from_clean, from_noisy)
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
            relabelled=sum(reply.n_corrected for reply in from_noisy.values()),
            undecided=sum(reply.n_undecided for reply in from_noisy.values()),
            shares=shares,
        )
        return FedSIRState(
            model=average_by_shares(replies, shares) if replies else state.model,
            split=state.split,
            clean_reference=average_by_samples(from_clean) if from_clean else state.clean_reference,
        )

    def relabels_in(self, t: int) -> bool:
        """Whether round t = 1, 2, … relabels."""
        config = self.config.relabel
        r = t - 1 if config.count_from == "zero" else t
        return bool(config.enabled and r > 0 and r % config.every == 0)

    def kd_weight(self, t: int) -> float:
        kd = self.config.kd
        if not kd.enabled:
            return 0.0
        return kd_ramp(t - 1, peak=kd.weight, begin=kd.ramp_begin, end=kd.ramp_end)

    def gather_references(self, from_clean: Mapping[ClientId, Taught], fed: Federation) -> References | None:
        """Average the clean clients' spectra; None without any."""
        config = self.config.relabel
        spectra_by_client = {}
        for k, spectra in FieldOf[Taught]("spectra", from_clean).items():
            if spectra is None or spectra.residuals.shape[1] != config.residual_rank:
                fed.reject(k, f"its spectra do not have {config.residual_rank} residual vectors per class")
            else:
                spectra_by_client[k] = spectra
        if not spectra_by_client:
            return None
        counts = np.sum([spectra.counts for spectra in spectra_by_client.values()], axis=0)
        n_features = next(iter(spectra_by_client.values())).directions.shape[1]
        few = [int(n) for n in counts if 0 < n < n_features]
        if few and config.rule != "direction":
            # Directions do not suffer from it: docs/results.md has the measurement.
            fed.record(
                note=f"clean clients have {min(few):,} to {max(few):,} images of {len(few)} of {len(counts)} classes, "
                f"fewer than the {n_features} features: residual subspaces say little there, and "
                "method.relabel.rule=direction does without them"
            )
        return aggregate_references(
            spectra_by_client,
            weight=config.weight,
            min_samples=config.min_samples,
            min_strength=config.min_strength,
        )

    # ------------------------------------------------------------------ on the client

    @client_task
    def train_clean(self, client: Client, model: Weights, wants_spectra: bool, spectra_model: Weights | None) -> Taught:
        """Train on the given labels with logit adjustment; asked of the clean participants of every round.

        In rounds that relabel, also send class spectra (Algorithm 2).
        """
        adjustment = self.adjustment(client)

        def loss_of(module: nn.Module, batch: Batch) -> Tensor:
            return la_loss(module(batch.images), batch.labels, adjustment)

        module = client.module(model)
        loss = train_with(self, client, module, loss_of)
        spectra = None
        if wants_spectra:
            config = self.config.relabel
            behind = module if spectra_model is None else client.module(spectra_model)
            collected = class_features_of(client, behind)
            spectra = extract_spectra(collected, config.residual_rank, config.residual, config.block_ratio)
        return Taught(weights_of(module), len(client.data), loss, spectra=spectra)

    @client_task
    def train_noisy(
        self,
        client: Client,
        model: Weights,
        kd_weight: float,
        references: dict[str, Tensor] | None,
        clean_reference: Weights | None,
    ) -> Repaired:
        """Train on the corrected labels, distilling the teacher; asked of the noisy participants of every round.

        In rounds that relabel, first correct the labels with the references that came (Algorithm 3).
        """
        if references is not None and clean_reference is not None:
            corrected, is_undecided = relabel_client(
                client,
                client.module(clean_reference),
                References(**{name: tensor.numpy() for name, tensor in references.items()}),
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
                return la_loss(logits, batch.labels, adjustment)
            return la_kd_loss(
                logits,
                teacher_logits(teacher, batch.images),
                batch.labels,
                adjustment,
                weight=kd_weight,
                temperature=self.config.kd.temperature,
                is_distilled=None if is_distilled is None else is_distilled[batch.index],
            )

        module = client.module(model)
        loss = train_with(self, client, module, loss_of)
        return Repaired(
            weights_of(module),
            len(client.data),
            loss,
            n_corrected=client.n_corrected,
            n_undecided=0 if undecided is None else int(undecided.sum()),
        )

    def adjustment(self, client: Client) -> Tensor:
        """Return the logit adjustment m of this client, (C,); zeros when switched off."""
        config = self.config.la
        labels = client.labels if config.prior == "corrected" else client.data.labels
        prior = class_prior(labels, client.data.n_classes)
        return logit_adjustment(prior, config.strength if config.enabled else 0.0).to(client.device)
