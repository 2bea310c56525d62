"""FedCorr (Xu et al., Multi-Stage Federated Learning for Label Noise Correction, CVPR 2022), in its three stages.

Clients whose predictions have a high intrinsic dimension are noisy; their labels are corrected by loss and confidence.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from torch import Tensor, nn

from fedsir.errors import MethodError
from fedsir.methods import fedcorr_math as maths
from fedsir.methods.averaging import average_by_samples, mean_loss
from fedsir.methods.base import Client, Federation, Method, ServerState, client_task
from fedsir.methods.baseline_settings import FedCorrConfig
from fedsir.methods.lid import FEWEST_POINTS, local_intrinsic_dimension
from fedsir.methods.local_training import Batch, StepDraws, cross_entropy, predictions, train_with
from fedsir.methods.replies import ClientId, Reply, Trained, Weights
from fedsir.methods.score_split import split_by_score
from fedsir.models.weights import weights_of

if TYPE_CHECKING:
    from fedsir.data.arrays import Counts

Stage = Literal["pre-processing", "fine-tuning", "usual"]
NOT_VISITED = "not visited in pre-processing"
TOO_FEW = "too few samples for an intrinsic dimension; three are needed"


@dataclass(frozen=True)
class FedCorrState(ServerState):
    lid_sums: dict[ClientId, float] = field(default_factory=dict)  # of the visits so far
    n_visits: dict[ClientId, int] = field(default_factory=dict)
    noise_levels: dict[ClientId, float] = field(default_factory=dict)  # μ̂; 0 for clean clients
    finished: list[ClientId] = field(default_factory=list)  # noisy clients whose last correction is done


@dataclass(frozen=True)
class Visited(Trained):
    """A client's model after a visit, and how its predictions spread.

    lid : mean local intrinsic dimension of its predictions; none with fewer than three samples
    """

    lid: float | None


@dataclass(frozen=True)
class Corrected(Reply):
    """What a client's losses say about its labels.

    noise_level : estimated share of wrong labels
    n_corrected : how many of its labels are not the given ones now
    """

    noise_level: float
    n_corrected: int


@dataclass(frozen=True)
class TrainedOnCorrected(Trained):
    """A client's model, trained on the labels as corrected so far.

    n_corrected : how many of them are not the given ones
    """

    n_corrected: int


class FedCorr(Method[FedCorrConfig, FedCorrState]):
    name = "fedcorr"
    Config = FedCorrConfig
    State = FedCorrState

    def check(self, counts: Counts) -> None:
        if int(counts.sum(axis=1).max()) < FEWEST_POINTS:
            raise MethodError(
                "fedcorr could assess no client: an intrinsic dimension needs three samples, and no client has them. "
                "Give clients more (data.n_clients, data.partition, data.n_train), or use fedavg."
            )

    def round(self, t: int, state: FedCorrState, fed: Federation) -> FedCorrState:
        stage = self.stage_of(t)
        fed.record(stage=stage)
        if stage == "pre-processing":
            return self.iteration(t, state, fed)
        if stage == "fine-tuning":
            return self.fine_tuning(state, fed)
        return self.usual_training(state, fed)

    def stage_of(self, t: int) -> Stage:
        """Return the stage of round t = 1, 2, …"""
        config = self.config
        if t <= config.iterations:
            return "pre-processing"
        return "fine-tuning" if t <= config.iterations + config.fine_tuning_rounds else "usual"

    def iteration(self, t: int, state: FedCorrState, fed: Federation) -> FedCorrState:
        """Visit the participants one after the other, each from the model of the one before; then correct labels."""
        model, lid_sums, n_visits = state.model, dict(state.lid_sums), dict(state.n_visits)
        losses: dict[ClientId, Trained] = {}  # of this iteration's visits, without their models
        order = fed.random.derive("visits").for_numpy().permutation(len(fed.participants))
        for start in range(0, len(order), self.config.visits_at_once):
            group = [fed.participants[i] for i in order[start : start + self.config.visits_at_once]]
            levels = {k: {"noise_level": state.noise_levels.get(k, 0.0)} for k in group}
            replies = fed.ask(self.visit, group, each=levels, model=model)
            model = average_by_samples(replies) if replies else model
            for k, reply in replies.items():
                losses[k] = Trained({}, reply.n_samples, reply.loss)
                n_visits[k] = n_visits.get(k, 0) + 1
                if reply.lid is not None:
                    lid_sums[k] = lid_sums.get(k, 0.0) + reply.lid
        # DEVIATES(paper): the mean over visits, not their sum: alike while everybody is visited equally often.
        lid = {k: lid_sums[k] / n_visits[k] for k in fed.clients if k in lid_sums}
        if not lid and t == self.config.iterations:
            first = next((f" (client {k}: {reason})" for k, reason in fed.failures.items()), "")
            raise MethodError(
                f"Round {t}: fedcorr could assess no client, as none with three samples or more answered{first}; raise "
                "method.iterations or participation, lower dropout, give clients more samples, or use fedavg."
            )
        split = split_by_score(lid, {k: TOO_FEW if k in n_visits else NOT_VISITED for k in fed.clients if k not in lid})
        accused = frozenset(split.untrusted)
        corrections = fed.ask(self.correct, [k for k in losses if k in lid and k in accused], model=model)
        # Of those who were clean before, the level 0 was no estimate.
        known = frozenset(state.split.untrusted) & accused if state.split else frozenset()
        noise_levels = {k: level for k, level in state.noise_levels.items() if k in known}
        noise_levels |= {k: reply.noise_level for k, reply in corrections.items()} | dict.fromkeys(split.clean, 0.0)
        fed.record(
            loss=mean_loss(losses),
            lid=lid,
            noise_levels={k: noise_levels[k] for k in fed.clients if k in noise_levels},
            relabelled=sum(reply.n_corrected for reply in corrections.values()),
        )
        return replace(state, model=model, split=split, lid_sums=lid_sums, n_visits=n_visits, noise_levels=noise_levels)

    def fine_tuning(self, state: FedCorrState, fed: Federation) -> FedCorrState:
        """Train on clients with hardly any noise alone."""
        pool = {k for k, level in state.noise_levels.items() if level <= self.config.clean_level}
        replies = fed.ask(self.train, [k for k in fed.participants if k in pool], model=state.model, corrects=False)
        fed.record(loss=mean_loss(replies), n_fine_tuned=len(replies))
        return replace(state, model=average_by_samples(replies) if replies else state.model)

    def usual_training(self, state: FedCorrState, fed: Federation) -> FedCorrState:
        """Train on everybody; a noisy client corrects its labels once more before its first round here."""
        assert state.split is not None, "pre-processing ends with a split"
        due = set(state.split.untrusted) - set(state.finished)
        each = {k: {"corrects": k in due} for k in fed.participants}
        replies = fed.ask(self.train, fed.participants, each=each, model=state.model)
        fed.record(loss=mean_loss(replies), relabelled=sum(reply.n_corrected for reply in replies.values()))
        finished = [*state.finished, *(k for k in replies if k in due)]
        return replace(state, model=average_by_samples(replies) if replies else state.model, finished=finished)

    # ------------------------------------------------------------------ on the client

    @client_task
    def visit(self, client: Client, model: Weights, noise_level: float) -> Visited:
        """Train near the global model, measure how the predictions spread; asked of one after the other in stage 1."""
        module = client.module(model)
        loss = self.train_near(client, module, proximal_weight=self.config.proximal_weight * noise_level)
        predicted = predictions(client, module, is_augmented=True).cpu()
        losses = maths.sample_losses(predicted, client.labels, self.config.double_softmax)
        if self.config.accumulate_losses and "losses" in client.state:
            losses = losses + client.state["losses"]
        client.state["losses"] = losses
        lid = None
        if len(predicted) >= FEWEST_POINTS:
            lid = float(local_intrinsic_dimension(predicted, self.config.n_neighbours).mean())
        return Visited(weights_of(module), len(client.data), loss, lid=lid)

    @client_task
    def correct(self, client: Client, model: Weights) -> Corrected:
        """Correct the labels of the highest loss that the model is sure of; asked of noisy clients in stage 1."""
        losses = client.state["losses"]
        level = maths.noise_level(losses)
        self.replace_labels(client, model, maths.highest(losses, level * self.config.relabel_share))
        return Corrected(level, client.n_corrected)

    @client_task
    def train(self, client: Client, model: Weights, corrects: bool) -> TrainedOnCorrected:
        """Train on the labels as corrected so far; asked of participants in stages 2 (the cleaner ones) and 3 (all).

        On request, first correct all labels of which the model is sure.
        """
        client.state.pop("losses", None)  # of pre-processing, which is over
        if corrects:
            self.replace_labels(client, model, None)
        module = client.module(model)
        loss = self.train_near(client, module, proximal_weight=0.0)
        return TrainedOnCorrected(weights_of(module), len(client.data), loss, n_corrected=client.n_corrected)

    def train_near(self, client: Client, module: nn.Module, proximal_weight: float) -> float:
        """Train for one round with mixup and the proximal term; return the mean loss per sample."""
        draws = StepDraws(client, "mixup", self.config.epochs, 2) if self.config.mixup else None
        parameters = list(module.parameters())
        reference = [parameter.detach().clone() for parameter in parameters] if proximal_weight > 0 else []

        def loss_of(module: nn.Module, batch: Batch) -> Tensor:
            if draws is None:
                loss = cross_entropy(module, batch)
            else:
                loss = maths.mixup_loss(module, batch.images, batch.labels, draws.take(len(batch.index)))
            if proximal_weight > 0:
                loss = loss + proximal_weight * maths.proximity(parameters, reference, self.config.proximal_norm)
            return loss

        return train_with(self, client, module, loss_of)

    def replace_labels(self, client: Client, model: Weights, is_open: Tensor | None) -> None:
        """Set the client's corrected labels from the model's predictions; None opens all of them."""
        predicted = predictions(client, client.module(model), is_augmented=True).cpu()
        labels = client.labels
        is_open = labels >= 0 if is_open is None else is_open
        client.state["corrected_labels"] = maths.corrected(labels, predicted, is_open, self.config.confidence)
