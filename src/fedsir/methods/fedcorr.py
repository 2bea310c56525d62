"""FedCorr (Xu et al., Multi-Stage Federated Learning for Label Noise Correction, CVPR 2022), in its three stages.

Clients whose predictions have a high intrinsic dimension are noisy; their labels are corrected by loss and confidence.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field

from fedsir import methods
from fedsir.errors import MethodError
from fedsir.methods.base import (
    Client,
    ClientId,
    Federation,
    Method,
    MethodConfig,
    Reply,
    ServerState,
    Weights,
    client_task,
)
from fedsir.methods.fedavg import average_by_samples, mean_loss
from fedsir.methods.score_split import split_by_score
from fedsir.methods.workload import FORWARD_SHARE, Size, Work

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fedsir.data.arrays import Counts
    from fedsir.methods.local_training import Batch

Stage = Literal["pre-processing", "fine-tuning", "usual"]
UNHEARD = "not visited in pre-processing"
TOO_FEW = "too few samples for an intrinsic dimension; three are needed"


class FedCorrConfig(MethodConfig):
    iterations: int | None = Field(
        None, ge=1, description="rounds of pre-processing, in each of which every client is visited (T₁); 5 per 100"
    )
    fine_tuning_rounds: int | None = Field(
        None, ge=0, description="rounds on nearly clean clients alone (T₂); 50 per 100; the rest is usual training"
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

    def scaled_to(self, rounds: int) -> Self:
        iterations, fine_tuning = self.iterations, self.fine_tuning_rounds
        if iterations is None:
            iterations = max(1, round(0.05 * rounds))
        if fine_tuning is None:  # leaves at least one round of usual training
            fine_tuning = max(0, min(max(1, round(0.5 * rounds)), rounds - iterations - 1))
        return self.model_copy(update={"iterations": iterations, "fine_tuning_rounds": fine_tuning})


@dataclass(frozen=True)
class FedCorrState(ServerState):
    lid_sums: dict[ClientId, float] = field(default_factory=dict)  # of the visits so far
    n_visits: dict[ClientId, int] = field(default_factory=dict)
    noise_levels: dict[ClientId, float] = field(default_factory=dict)  # μ̂; 0 for clean clients
    finished: list[ClientId] = field(default_factory=list)  # noisy clients whose last correction is done


class FedCorr(Method):
    name = "fedcorr"
    summary = (
        "finds noisy clients by the intrinsic dimension of their predictions, corrects labels by loss and confidence"
    )
    Config = FedCorrConfig
    State = FedCorrState
    config: FedCorrConfig

    def check(self, counts: Counts) -> None:
        if int(counts.sum(axis=1).max()) < methods.lid.FEWEST_POINTS:
            raise MethodError(
                "fedcorr could assess no client: an intrinsic dimension needs three samples, and no client has them. "
                "Give clients more (data.n_clients, data.partition, data.n_train), or use fedavg."
            )

    def round(self, t: int, state: FedCorrState, fed: Federation) -> FedCorrState:
        stage = self.stage_of(t)
        fed.record(stage=stage)
        if stage == "pre-processing":
            return self.iteration(t, state, fed)
        assert state.split is not None, "pre-processing ends with a split"
        if stage == "fine-tuning":
            return self.fine_tuning(state, fed)
        return self.usual_training(state, fed)

    def stage_of(self, t: int) -> Stage:
        """Return the stage of round t = 1, 2, …"""
        config = self.config
        assert config.iterations is not None and config.fine_tuning_rounds is not None, "scaled_to fills them in"
        if t <= config.iterations:
            return "pre-processing"
        return "fine-tuning" if t <= config.iterations + config.fine_tuning_rounds else "usual"

    def work(self, size: Size) -> list[Work]:
        config, n, drawn = self.config, size.n_participants, size.n_drawn
        assert config.iterations is not None and config.fine_tuning_rounds is not None, "scaled_to fills them in"
        n_visits = min(size.rounds, config.iterations)
        n_fine = min(size.rounds - n_visits, config.fine_tuning_rounds)
        # Half of the clients, say, are noisy: they correct labels after an iteration, and rest in fine-tuning.
        n_trainings = size.rounds - n_visits - n_fine / 2
        return [
            Work(n_visits * (config.epochs + FORWARD_SHARE) * drawn, n_visits * n, min(n, config.visits_at_once)),
            Work(n_visits * FORWARD_SHARE / 2 * drawn, n_visits * n / 2, n),
            Work(n_trainings * config.epochs * drawn, n_trainings * n, n),
        ]

    def iteration(self, t: int, state: FedCorrState, fed: Federation) -> FedCorrState:
        """Visit the participants one after the other, each from the model of the one before; then correct labels."""
        model, lid_sums, n_visits = state.model, dict(state.lid_sums), dict(state.n_visits)
        losses: dict[ClientId, Reply] = {}  # of this iteration's visits, without their models
        order = fed.random.derive("visits").for_numpy().permutation(len(fed.participants))
        for start in range(0, len(order), self.config.visits_at_once):
            group = [fed.participants[i] for i in order[start : start + self.config.visits_at_once]]
            levels = {k: {"noise_level": state.noise_levels.get(k, 0.0)} for k in group}
            replies = fed.ask("visit", group, each=levels, model=model)
            model = average_by_samples(replies) if replies else model
            for k, reply in replies.items():
                losses[k] = {"loss": reply["loss"], "n_samples": reply["n_samples"]}
                n_visits[k] = n_visits.get(k, 0) + 1
                if reply["lid"] is not None:
                    lid_sums[k] = lid_sums.get(k, 0.0) + reply["lid"]
        # DEVIATES(paper): the mean over visits, not their sum: alike while everybody is visited equally often.
        lid = {k: lid_sums[k] / n_visits[k] for k in fed.clients if k in lid_sums}
        if not lid and t == self.config.iterations:
            first = next((f" (client {k}: {reason})" for k, reason in fed.failures.items()), "")
            raise MethodError(
                f"Round {t}: fedcorr could assess no client, as none with three samples or more answered{first}; raise "
                "method.iterations or participation, lower dropout, give clients more samples, or use fedavg."
            )
        split = split_by_score(lid, {k: TOO_FEW if k in n_visits else UNHEARD for k in fed.clients if k not in lid})
        accused = frozenset(split.untrusted)
        corrections = fed.ask("correct", [k for k in losses if k in lid and k in accused], model=model)
        # Of those who were clean before, the level 0 was no estimate.
        known = frozenset(state.split.untrusted) & accused if state.split else frozenset()
        noise_levels = {k: level for k, level in state.noise_levels.items() if k in known}
        noise_levels |= {k: reply["noise_level"] for k, reply in corrections.items()} | dict.fromkeys(split.clean, 0.0)
        fed.record(
            loss=mean_loss(losses),
            lid=lid,
            noise_levels={k: noise_levels[k] for k in fed.clients if k in noise_levels},
            relabelled=sum(reply["n_corrected"] for reply in corrections.values()),
        )
        return replace(state, model=model, split=split, lid_sums=lid_sums, n_visits=n_visits, noise_levels=noise_levels)

    def fine_tuning(self, state: FedCorrState, fed: Federation) -> FedCorrState:
        """Train on clients with hardly any noise alone."""
        pool = {k for k, level in state.noise_levels.items() if level <= self.config.clean_level}
        replies = fed.ask("train", [k for k in fed.participants if k in pool], model=state.model, corrects=False)
        fed.record(loss=mean_loss(replies), n_fine_tuned=len(replies))
        return replace(state, model=average_by_samples(replies) if replies else state.model)

    def usual_training(self, state: FedCorrState, fed: Federation) -> FedCorrState:
        """Train on everybody; a noisy client corrects its labels once more before its first round here."""
        assert state.split is not None, "pre-processing ends with a split"
        due = set(state.split.untrusted) - set(state.finished)
        each = {k: {"corrects": k in due} for k in fed.participants}
        replies = fed.ask("train", fed.participants, each=each, model=state.model)
        fed.record(loss=mean_loss(replies), relabelled=sum(reply["n_corrected"] for reply in replies.values()))
        finished = [*state.finished, *(k for k in replies if k in due)]
        return replace(state, model=average_by_samples(replies) if replies else state.model, finished=finished)

    # ------------------------------------------------------------------ on the client

    @client_task
    def visit(self, client: Client, model: Weights, noise_level: float) -> Reply:
        """Train near the global model, the nearer the noisier; tell the intrinsic dimension of the predictions."""
        module = client.module(model)
        loss = self.train_locally(client, module, proximal_weight=self.config.proximal_weight * noise_level)
        predicted = methods.local_training.predictions(client, module, is_augmented=True).cpu()
        losses = methods.fedcorr_math.sample_losses(predicted, client.labels, self.config.double_softmax)
        if self.config.accumulate_losses and "losses" in client.state:
            losses = losses + client.state["losses"]
        client.state["losses"] = losses
        lid = None
        if len(predicted) >= methods.lid.FEWEST_POINTS:
            lid = float(methods.lid.local_intrinsic_dimension(predicted, self.config.n_neighbours).mean())
        return methods.local_training.trained_reply(client, module, loss) | {"lid": lid}

    @client_task
    def correct(self, client: Client, model: Weights) -> Reply:
        """Estimate the share of wrong labels; of these, correct those of the highest loss that the model is sure of."""
        losses = client.state["losses"]
        level = methods.fedcorr_math.noise_level(losses)
        self.replace_labels(client, model, methods.fedcorr_math.highest(losses, level * self.config.relabel_share))
        return {"noise_level": level, "n_corrected": client.n_corrected}

    @client_task
    def train(self, client: Client, model: Weights, corrects: bool) -> Reply:
        """Train on the labels as corrected so far; on request, first correct all of which the model is sure."""
        client.state.pop("losses", None)  # of pre-processing, which is over
        if corrects:
            self.replace_labels(client, model, None)
        module = client.module(model)
        loss = self.train_locally(client, module, proximal_weight=0.0)
        return methods.local_training.trained_reply(client, module, loss) | {"n_corrected": client.n_corrected}

    def train_locally(self, client: Client, module: nn.Module, proximal_weight: float) -> float:
        """Train for one round with mixup and the proximal term; return the mean loss per sample."""
        draws = methods.step_draws.StepDraws(client, "mixup", self.config.epochs, 2) if self.config.mixup else None
        parameters = list(module.parameters())
        reference = [parameter.detach().clone() for parameter in parameters] if proximal_weight > 0 else []

        def loss_of(module: nn.Module, batch: Batch) -> Tensor:
            if draws is None:
                loss = methods.local_training.cross_entropy(module, batch)
            else:
                drawn = draws.take(len(batch.index))
                loss = methods.fedcorr_math.mixup_loss(module, batch.images, batch.labels, drawn)
            if proximal_weight > 0:
                near = methods.fedcorr_math.proximity(parameters, reference, self.config.proximal_norm)
                loss = loss + proximal_weight * near
            return loss

        return methods.local_training.train_with(client, module, loss_of, self.config)

    def replace_labels(self, client: Client, model: Weights, is_open: Tensor | None) -> None:
        """Set the client's corrected labels from the model's predictions; None opens all of them."""
        predicted = methods.local_training.predictions(client, client.module(model), is_augmented=True).cpu()
        labels = client.labels
        is_open = labels >= 0 if is_open is None else is_open
        client.state["corrected_labels"] = methods.fedcorr_math.corrected(
            labels, predicted, is_open, self.config.confidence
        )
