"""FedSIR's Stage I as methods share it: its client task, and the server's part that asks and splits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch

from fedsir.errors import MethodError
from fedsir.methods.base import DROPPED_OUT, Client, Federation, Method, ServerState, client_task
from fedsir.methods.bayes_relabelling import moments_of, scores_of
from fedsir.methods.fedsir_settings import SpectralConfig
from fedsir.methods.local_training import class_features_of, cross_entropy, train_with
from fedsir.methods.replies import STAYS, ClientId, FieldOf, Reply, Weights
from fedsir.models.weights import weights_of
from fedsir.stages.bayes import Temperature
from fedsir.stages.discriminant import ClassMoments
from fedsir.stages.identify import class_directions, class_similarity, off_diagonal_stats, pair_similarities
from fedsir.stages.noise_rates import (
    BELIEFS,
    Belief,
    NoiseRate,
    discriminants_of_others,
    judge_each_other,
    noise_rate,
    split_by_noise_rates,
)
from fedsir.stages.pairwise import PairSimilarities, split_by_pairs
from fedsir.stages.split import ClientSplit, OffDiagonal, split_clients
from fedsir.stages.train import average_models

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fedsir.data.arrays import Counts, Floats
    from fedsir.stages.spectrum import ClassFeatures

TWO_CLASSES = "Give clients samples of two classes or more (data.partition, data.alpha)"
C = TypeVar("C", bound=SpectralConfig)
S = TypeVar("S", bound=ServerState)


@dataclass(frozen=True)
class Identified(Reply):
    """What a client sends in Stage I.

    mean : mean of the similarities of two different classes, Eq. (3); none with fewer than two usable classes
    energy : mean of their squares, Eq. (4)
    n_usable_classes : how many classes had enough samples
    n_samples : how many samples the client has
    loss : mean training loss per sample; none without training (identify.epochs = 0), or where settings keep it back
    model : the trained weights; none without training, or where nobody has a use for them yet
    pairs : how alike every two of its classes are; only with identify.split = pairwise
    """

    mean: float | None
    energy: float | None
    n_usable_classes: int
    n_samples: int
    loss: float | None
    model: Weights | None
    pairs: PairSimilarities | None = field(default=None, metadata={STAYS: True})

    @property
    def statistics(self) -> OffDiagonal:
        mean, energy = (math.nan if value is None else value for value in (self.mean, self.energy))
        return OffDiagonal(mean, energy, self.n_usable_classes)


@dataclass(frozen=True)
class Described(Reply):
    """Sums of a client's features, where clients are split by noise rates.

    moments : count and sum of the features of each class, and one matrix of second moments
    """

    moments: ClassMoments

    def fault(self) -> str | None:
        return self.moments.fault


@dataclass(frozen=True)
class Judged(Reply):
    """A client's noise rate, by what the other clients' classes look like.

    noise_rate : its rate, standard error, number of judged samples, and how likely its labels are by temperature; none
        where too few could be judged
    """

    noise_rate: NoiseRate | None


class SpectralIdentification(Method[C, S]):
    """A method that begins with Stage I; its settings have a group `identify`."""

    def check(self, counts: Counts) -> None:
        if int((counts > 0).sum(axis=1).max()) < 2:
            raise self._nobody_is_clean(f"none has two classes to compare. {TWO_CLASSES}")

    def find_noisy_clients(self, fed: Federation, model: Weights) -> tuple[ClientSplit, Mapping[ClientId, Identified]]:
        """Ask everybody for two numbers and split clean from noisy; return the split and the replies."""
        replies = fed.ask(self.identify, fed.clients, model=model)
        how = self.config.identify.split
        statistics = {k: reply.statistics for k, reply in replies.items()}
        if how == "rates":
            split = self.split_by_noise_rates(fed, replies, model)
        elif how == "pairwise":
            split = split_by_pairs(statistics, FieldOf("pairs", replies), missing=fed.failures)
        else:
            split = split_clients(statistics, how, missing=fed.failures)
        if split.note:
            fed.record(note=split.note)
        if not split.clean:
            raise self._nobody_is_clean(_reasons(split, fed.failures))
        return split, replies

    def split_by_noise_rates(
        self, fed: Federation, replies: Mapping[ClientId, Identified], model: Weights
    ) -> ClientSplit:
        """Ask everybody for sums of features under one model, then for the noise rate that the others' sums show."""
        if self.config.trains_first and replies:
            model = average_models(
                (reply.model or {} for reply in replies.values()), [r.n_samples for r in replies.values()]
            )
        described = fed.ask(self.describe, list(replies), model=model)
        moments = {k: reply.moments for k, reply in described.items()}

        def ask(
            trust: Mapping[ClientId, float], temperature: Temperature, belief: Belief
        ) -> dict[ClientId, NoiseRate | None]:
            others = discriminants_of_others(moments, trust)
            each = {k: {"references": vars(fitted)} for k, fitted in others.items()}
            judged = fed.ask(
                self.judge,
                list(each),
                model=model,
                each=each,
                temperature=asdict(temperature),
                belief=belief.name,
            )
            return {k: reply.noise_rate for k, reply in judged.items()}

        per_feature = sum(float(sums.counts.sum()) / sums.sums.shape[1] for sums in moments.values())
        statistics = {k: reply.statistics for k, reply in replies.items()}
        rates, _ = judge_each_other(ask, {k: statistics[k] for k in moments}, per_feature)
        split = split_by_noise_rates(rates, statistics, missing=fed.failures)
        if split.noise_rates:
            fed.record(noise_rate_by_client=split.noise_rates)
        if split.clean and rates and all(rate is not None and rate.is_noisy for rate in rates.values()):
            least = split.clean[0]
            fed.record(
                note=f"every client looks noisy: client {least}, the least noisy with {split.noise_rates[least]:.0%} "
                "wrong labels by estimate, serves as the reference"
            )
        return split

    def _nobody_is_clean(self, why_and_what_to_do: str) -> MethodError:
        return MethodError(
            f"Stage I of {self.name} could call no client clean: {why_and_what_to_do}, or use a method that needs no "
            "clean client (fedavg)."
        )

    @client_task
    def identify(self, client: Client, model: Weights) -> Identified:
        """Train a little, send what class similarities amount to; asked of everybody before round 1.

        With split = rates and judged_by = initial nobody trains yet.
        """
        collected, loss, weights = self.class_features(client, model)
        directions = class_directions(collected, self.config.identify.min_class_samples)
        found = off_diagonal_stats(class_similarity(directions))
        mean, energy = (None if math.isnan(value) else value for value in (found.mean, found.energy))
        pairs = None
        if self.config.identify.split == "pairwise":
            leaves = collected.counts >= self.config.min_class_samples
            pairs = pair_similarities(collected, np.where(leaves[:, None], directions, np.nan))
        return Identified(mean, energy, found.n_usable_classes, len(client.data), loss, weights, pairs)

    @client_task
    def describe(self, client: Client, model: Weights) -> Described:
        """Send sums of features by given label; asked of everybody before round 1 if split = rates."""
        return Described(moments_of(client, client.module(model), self.config.min_class_samples))

    @client_task
    def judge(
        self,
        client: Client,
        model: Weights,
        references: dict[str, Tensor],
        temperature: dict[str, float],
        belief: str,
    ) -> Judged:
        """Estimate the share of wrong labels by what the others' classes look like; asked after `describe`."""
        client.state["temperature"] = torch.tensor(temperature["guess"])  # what relabelling begins with
        scores, given = scores_of(client, client.module(model), references), client.data.labels.numpy()
        if self.config.judges_first:  # features that have seen no label yet: relabelling comes back to them
            client.state["first_scores"] = torch.from_numpy(scores.astype(np.float32))
        return Judged(noise_rate(scores, given, Temperature(**temperature), BELIEFS[belief]))

    def class_similarity(self, client: Client, model: Weights) -> Floats:
        """Return the class similarities of a client that has trained a little, (C, C), as in the paper's Figure 2."""
        collected, _, _ = self.class_features(client, model)
        return class_similarity(class_directions(collected, self.config.identify.min_class_samples))

    def class_features(self, client: Client, model: Weights) -> tuple[ClassFeatures, float | None, Weights | None]:
        """Train a client a little; return what is known of its classes then, its loss and its model."""
        module = client.module(model)
        loss = weights = None
        if self.config.trains_first:
            loss = self.train_a_little(client, module)
            weights = weights_of(module)
        is_augmented = self.config.identify.features == "augmented"
        return class_features_of(client, module, is_augmented=is_augmented), loss, weights

    def train_a_little(self, client: Client, module: nn.Module) -> float | None:
        """Train as Stage I does; return the mean loss per sample."""
        config = self.config.identify
        return train_with(
            self,
            client,
            module,
            cross_entropy,
            epochs=config.epochs,
            lr=config.lr,
            weight_decay=config.weight_decay,
        )


def _reasons(split: ClientSplit, failures: Mapping[ClientId, str]) -> str:
    if not split.not_assessed:
        return "its mixture put everybody into the noisy group. Set method.identify.split = auto"
    client, reason = next(iter(split.not_assessed.items()))
    way_out = "Put that right" if client in failures else TWO_CLASSES
    if reason == DROPPED_OUT:
        way_out = "Lower dropout"
    return f"{len(split.not_assessed)} could not be assessed (client {client}: {reason}). {way_out}"
