"""FedSIR: spectral client identification and relabelling, read top to bottom as the paper's Algorithm 1.

Stage I runs once in `start`; Stages II and III run in `round`. The mathematics is in `fedsir.stages`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import TypeVar, cast

from torch import Tensor, nn

from fedsir.errors import MethodError
from fedsir.methods import bayes_relabelling as bayes
from fedsir.methods import spectral_relabelling as spectral
from fedsir.methods.averaging import aggregation_shares, average_by_samples, average_by_shares, mean_loss
from fedsir.methods.base import DROPPED_OUT, Client, Federation, ServerState, client_task
from fedsir.methods.bayes_relabelling import Summed, sums_of
from fedsir.methods.fedsir_settings import FedSIRConfig
from fedsir.methods.local_training import Batch, teacher_logits, train_with
from fedsir.methods.replies import STAYS, ClientId, Joined, Reply, Trained, Weights
from fedsir.methods.spectral_identification import Identified, SpectralIdentification
from fedsir.models.weights import weights_of
from fedsir.stages.discriminant import Booleans, ClassMoments
from fedsir.stages.noise_rates import looks_clean
from fedsir.stages.relabel import ClassSpectra, fault_of
from fedsir.stages.split import ClientSplit
from fedsir.stages.train import class_prior, kd_ramp, la_kd_loss, la_loss, logit_adjustment

R = TypeVar("R", bound=Reply)


@dataclass(frozen=True)
class FedSIRState(ServerState):
    clean_reference: Weights = field(default_factory=dict)  # average of the clean clients' last models


@dataclass(frozen=True)
class Taught(Trained):
    """A clean client's model and, in relabelling rounds, what its classes look like.

    spectra : what each class looks like, in rounds that relabel by a spectral rule; none in others
    moments : sums of features, in rounds that relabel by bayes; none in others
    """

    spectra: ClassSpectra | None = None
    moments: ClassMoments | None = None

    def fault(self) -> str | None:
        of_moments = None if self.moments is None else self.moments.fault
        return of_moments if self.spectra is None else fault_of(self.spectra)


@dataclass(frozen=True)
class Repaired(Trained):
    """A noisy client's model, and how far its labels were corrected.

    n_corrected : how many of its labels are not the given ones; none where the settings keep it back
    n_undecided : for how many samples the two scores name different classes, or no class is probable enough; likewise
    noise_rate : estimated share of wrong given labels, in rounds that relabel by bayes; none in others
    probability_noisy : how likely that share is above 5 %; likewise
    doubt : expected share of corrected labels that are still wrong; none before bayes has corrected any
    """

    n_corrected: int | None
    n_undecided: int | None
    noise_rate: float | None = None
    doubt: float | None = None
    probability_noisy: float | None = field(default=None, metadata={STAYS: True})


class FedSIR(SpectralIdentification[FedSIRConfig, FedSIRState]):
    name = "fedsir"
    Config = FedSIRConfig
    State = FedSIRState

    def start(self, fed: Federation, model: Weights) -> FedSIRState:
        """Stage I: every client sends two numbers; a mixture of two Gaussians splits clean from noisy."""
        split, replies = self.find_noisy_clients(fed, model)
        if self.config.hands_over:
            trained: Mapping[ClientId, Trained] = Joined(split.clean, fed.ask(self.hand_over, split.clean))
        elif self.config.warms_up:
            trained = Joined(split.clean, fed.ask(self.warm_up, split.clean, model=model))
        else:  # with identify.epochs = 0 nobody has trained
            first = Joined(split.clean, replies) if self.config.trains_first else {}
            trained = cast(Mapping[ClientId, Trained], first)
        start_model = average_by_samples(trained) if trained else model
        fed.record(loss=mean_loss(trained))
        return FedSIRState(model=start_model, split=split, clean_reference=start_model)

    def round(self, t: int, state: FedSIRState, fed: Federation) -> FedSIRState:
        """Stages II and III: clean clients train and teach, noisy clients relabel and train, the server averages."""
        assert state.split is not None, "Stage I sets it"
        trusted, untrusted = frozenset(state.split.clean), frozenset(state.split.untrusted)
        clean = [k for k in fed.participants if k in trusted]
        noisy = [k for k in fed.participants if k in untrusted]
        relabels_now, source = self.relabels_in(t), self.config.relabel.spectra_from
        reference = state.clean_reference if relabels_now and source != "global_model" else None
        from_clean = fed.ask(
            self.train_clean,
            clean,
            model=state.model,
            wants_spectra=relabels_now,
            spectra_model=None if source == "own_model" else reference,
        )
        broken = [k for k in clean if fed.failures.get(k, DROPPED_OUT) != DROPPED_OUT]
        if broken and not from_clean:
            raise MethodError(
                f"Round {t}: every clean client failed, and noisy ones alone would spoil the model; "
                f"client {broken[0]}: {fed.failures[broken[0]]}."
            )

        def ask_noisy(classes: Booleans) -> Mapping[ClientId, Summed]:
            behind = state.model if reference is None else reference
            return fed.ask(self.sum_classes, noisy, model=behind, classes=classes)

        references = self.stage_two.gathered(self.config, from_clean, fed, ask_noisy) if relabels_now else None
        from_noisy = fed.ask(
            self.train_noisy,
            noisy,
            model=state.model,
            kd_weight=self.kd_weight(t),
            references=references,
            clean_reference=None if references is None else reference,
        )
        replies: Joined[Trained] = Joined(fed.participants, from_clean, from_noisy)
        shares = self.shares(replies, from_noisy, state.split)
        rates = {k: reply.noise_rate for k, reply in from_noisy.items() if reply.noise_rate is not None}
        fed.record(
            loss=mean_loss(replies),
            loss_clean=mean_loss(from_clean),
            loss_noisy=mean_loss(from_noisy),
            kd_weight=self.kd_weight(t),
            has_relabelled=references is not None,
            relabelled=_sum_of_known(reply.n_corrected for reply in from_noisy.values()),
            undecided=_sum_of_known(reply.n_undecided for reply in from_noisy.values()),
            shares=shares,
            **({"noise_rate_by_client": rates} if rates else {}),
        )
        return FedSIRState(
            model=average_by_shares(replies, shares) if replies else state.model,
            split=self.second_opinion(state.split, from_noisy, fed),
            clean_reference=average_by_samples(from_clean) if from_clean else state.clean_reference,
        )

    @staticmethod
    def second_opinion(split: ClientSplit, from_noisy: Mapping[ClientId, Repaired], fed: Federation) -> ClientSplit:
        """Return the split in which clients that bayes finds clean count as clean: it knows more than Stage I."""
        likely = {k: reply.probability_noisy for k, reply in from_noisy.items()}
        found = {k: p for k, p in likely.items() if p is not None and looks_clean(p)}
        if not found:
            return split
        fed.record(
            note=f"{', '.join(f'client {k}' for k in found)} counts as clean from now on: by what the clean clients' "
            "classes look like, its labels are right"
        )
        return split.cleared(found, fed.clients)

    @property
    def stage_two(self) -> ModuleType:
        """The module with the two halves of the relabelling: taught, gathered, corrected."""
        return bayes if self.config.relabel.rule == "bayes" else spectral

    def relabels_in(self, t: int) -> bool:
        """Whether round t = 1, 2, … relabels."""
        config = self.config.relabel
        if config.count_from == "first":
            return bool(config.enabled and t >= 1 and (t - 1) % config.every == 0)
        r = t - 1 if config.count_from == "zero" else t
        return bool(config.enabled and r > 0 and r % config.every == 0)

    def kd_weight(self, t: int) -> float:
        kd = self.config.kd
        if not kd.enabled:
            return 0.0
        return kd_ramp(t - 1, peak=kd.weight, begin=kd.ramp_begin, end=kd.ramp_end)

    def shares(
        self, replies: Mapping[ClientId, Trained], from_noisy: Mapping[ClientId, Repaired], split: ClientSplit
    ) -> dict[ClientId, float]:
        """Return how much each client's model counts."""
        config = self.config.daagg
        if not config.enabled or config.weigh_by == "distance":
            return aggregation_shares(replies, split.clean, is_distance_aware=config.enabled, distance=config.distance)
        left = {
            k: split.noise_rates.get(k, 0.0) if reply.doubt is None else reply.doubt for k, reply in from_noisy.items()
        }
        trusted = {k: reply.n_samples * (1 - left.get(k, 0.0)) for k, reply in replies.items()}
        total = sum(trusted.values())
        return {k: share / total for k, share in trusted.items()}

    # ------------------------------------------------------------------ on the client

    @client_task
    def identify(self, client: Client, model: Weights) -> Identified:
        """Train a little, send what class similarities amount to; asked of everybody before round 1."""
        found = super().identify(client, model)
        if self.config.hands_over:
            client.state["first_model"] = found.model
        return self._shared("identify", found)

    @client_task
    def hand_over(self, client: Client) -> Trained:
        """Send the model that Stage I has trained; asked of clean clients before round 1 if share = minimal."""
        return self._shared("hand_over", Trained(client.state.pop("first_model"), len(client.data), None))

    @client_task
    def warm_up(self, client: Client, model: Weights) -> Trained:
        """Train a little; asked of clean clients before round 1 if they were judged under the initial model."""
        module = client.module(model)
        loss = self.train_a_little(client, module)
        return self._shared("warm_up", Trained(weights_of(module), len(client.data), loss))

    def _shared(self, task: str, reply: R) -> R:
        """Return a reply without what stays with the client."""
        return replace(reply, **dict.fromkeys(self.config.stays.get(task, ())))

    @client_task
    def train_clean(self, client: Client, model: Weights, wants_spectra: bool, spectra_model: Weights | None) -> Taught:
        """Train on the given labels with logit adjustment; asked of the clean participants of every round.

        In rounds that relabel, also send class spectra (Algorithm 2).
        """
        client.state.clear()  # Stage I's model, and corrections of a client that counts as clean after all
        adjustment = self.adjustment(client)

        def loss_of(module: nn.Module, batch: Batch) -> Tensor:
            return la_loss(module(batch.images), batch.labels, adjustment)

        module = client.module(model)
        loss = train_with(self, client, module, loss_of)
        taught = {}
        if wants_spectra:
            config = self.config.relabel
            if config.spectra_from == "global_model":
                behind = client.module(model)
            else:
                behind = module if spectra_model is None else client.module(spectra_model)
            taught = self.stage_two.taught(self.config, client, behind)
        return self._shared("train_clean", Taught(weights_of(module), len(client.data), loss, **taught))

    @client_task
    def sum_classes(self, client: Client, model: Weights, classes: Tensor) -> Summed:
        """Send sums of features of classes that no clean client owns; asked of noisy clients before they relabel."""
        return sums_of(client, client.module(model), classes.numpy(), self.config.min_class_samples)

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
        client.state.pop("first_model", None)
        if references is not None:
            behind = client.module(model if clean_reference is None else clean_reference)
            client.state |= self.stage_two.corrected(self.config, client, behind, references)
        undecided = client.state.get("is_undecided")
        is_distilled = None if undecided is None or self.config.kd.on == "all" else undecided.to(client.device)
        adjustment = self.adjustment(client)
        teacher = client.module(model) if kd_weight > 0 else None
        probabilities = client.state.get("label_probabilities")
        targets = None
        if probabilities is not None and self.config.relabel.targets == "soft":
            targets = probabilities.to(client.device)

        def loss_of(module: nn.Module, batch: Batch) -> Tensor:
            logits = module(batch.images)
            labels = batch.labels if targets is None else targets[batch.index]
            if teacher is None:
                return la_loss(logits, labels, adjustment)
            return la_kd_loss(
                logits,
                teacher_logits(teacher, batch.images),
                labels,
                adjustment,
                weight=kd_weight,
                temperature=self.config.kd.temperature,
                is_distilled=None if is_distilled is None else is_distilled[batch.index],
            )

        module = client.module(model)
        loss = train_with(self, client, module, loss_of)
        reply = Repaired(
            weights_of(module),
            len(client.data),
            loss,
            n_corrected=client.n_corrected,
            n_undecided=0 if undecided is None else int(undecided.sum()),
            **self._estimates(client, has_relabelled=references is not None),
        )
        return self._shared("train_noisy", reply)

    @staticmethod
    def _estimates(client: Client, *, has_relabelled: bool) -> dict[str, float]:
        """Return what bayes says of a client's labels, as fields of `Repaired`; nothing with another rule."""
        probabilities = client.state.get("label_probabilities")
        if probabilities is None:
            return {}
        found = {name: float(client.state[name]) for name in ("noise_rate", "probability_noisy") if has_relabelled}
        doubt = {"doubt": 1 - float(probabilities.amax(dim=1).mean())}
        return doubt | {name: value for name, value in found.items() if not math.isnan(value)}

    def adjustment(self, client: Client) -> Tensor:
        """Return the logit adjustment m of this client, (C,); zeros when switched off."""
        config = self.config.la
        labels = client.data.labels
        if config.prior == "corrected":
            labels = client.state.get("label_probabilities", client.labels)
        prior = class_prior(labels, client.data.n_classes)
        return logit_adjustment(prior, config.strength if config.enabled else 0.0).to(client.device)


def _sum_of_known(counts: Iterable[int | None]) -> int | None:
    """Return the sum of what clients tell; None where those that answered keep it to themselves."""
    told = list(counts)
    known = [count for count in told if count is not None]
    return sum(known) if known or not told else None
