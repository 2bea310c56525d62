"""FedSIR's Stage I as methods share it: its client task, and the server's part that asks and splits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from fedsir.errors import MethodError
from fedsir.methods.base import DROPPED_OUT, Client, Federation, Method, ServerState, client_task
from fedsir.methods.fedsir_settings import SpectralConfig
from fedsir.methods.local_training import class_features_of, cross_entropy, train_with
from fedsir.methods.replies import ClientId, Reply, Weights
from fedsir.models.weights import weights_of
from fedsir.stages.identify import class_directions, class_similarity, off_diagonal_stats
from fedsir.stages.split import ClientSplit, OffDiagonal, split_clients

if TYPE_CHECKING:
    from fedsir.data.arrays import Counts, Floats

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
    loss : mean training loss per sample; none without training (identify.epochs = 0)
    model : the trained weights; none without training, or where the method has no use for them
    """

    mean: float | None
    energy: float | None
    n_usable_classes: int
    n_samples: int
    loss: float | None
    model: Weights | None

    @property
    def statistics(self) -> OffDiagonal:
        mean, energy = (math.nan if value is None else value for value in (self.mean, self.energy))
        return OffDiagonal(mean, energy, self.n_usable_classes)


class SpectralIdentification(Method[C, S]):
    """A method that begins with Stage I; its settings have a group `identify`."""

    def check(self, counts: Counts) -> None:
        if int((counts > 0).sum(axis=1).max()) < 2:
            raise self._nobody_is_clean(f"none has two classes to compare. {TWO_CLASSES}")

    def find_noisy_clients(self, fed: Federation, model: Weights) -> tuple[ClientSplit, Mapping[ClientId, Identified]]:
        """Ask everybody for two numbers and split clean from noisy; return the split and the replies."""
        replies = fed.ask(self.identify, fed.clients, model=model)
        statistics = {k: reply.statistics for k, reply in replies.items()}
        split = split_clients(statistics, self.config.identify.split, missing=fed.failures)
        if not split.clean:
            raise self._nobody_is_clean(_reasons(split, fed.failures))
        return split, replies

    def _nobody_is_clean(self, why_and_what_to_do: str) -> MethodError:
        return MethodError(
            f"Stage I of {self.name} could call no client clean: {why_and_what_to_do}, or use a method that needs no "
            "clean client (fedavg)."
        )

    @client_task
    def identify(self, client: Client, model: Weights) -> Identified:
        """Train a little, send mean and energy of the class similarities; asked of everybody before round 1."""
        similarity, loss, weights = self.class_similarity(client, model)
        found = off_diagonal_stats(similarity)
        mean, energy = (None if math.isnan(value) else value for value in (found.mean, found.energy))
        return Identified(mean, energy, found.n_usable_classes, len(client.data), loss, weights)

    def class_similarity(self, client: Client, model: Weights) -> tuple[Floats, float | None, Weights | None]:
        """Return the class similarities of a client that has trained a little, (C, C), its loss and its model.

        The matrix stays with the client; the paper's Figure 2 shows it.
        """
        config = self.config.identify
        module = client.module(model)
        loss = weights = None
        if config.epochs > 0:
            loss = train_with(
                self,
                client,
                module,
                cross_entropy,
                epochs=config.epochs,
                lr=config.lr,
                weight_decay=config.weight_decay,
            )
            weights = weights_of(module)
        collected = class_features_of(client, module, is_augmented=config.features == "augmented")
        return class_similarity(class_directions(collected, config.min_class_samples)), loss, weights


def _reasons(split: ClientSplit, failures: Mapping[ClientId, str]) -> str:
    if not split.not_assessed:
        return "its mixture put everybody into the noisy group. Set method.identify.split = auto"
    client, reason = next(iter(split.not_assessed.items()))
    way_out = "Put that right" if client in failures else TWO_CLASSES
    if reason == DROPPED_OUT:
        way_out = "Lower dropout"
    return f"{len(split.not_assessed)} could not be assessed (client {client}: {reason}). {way_out}"
