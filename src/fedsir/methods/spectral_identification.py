"""FedSIR's Stage I as methods share it: its settings, its client task, and the server's part that asks and splits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from fedsir import methods, stages
from fedsir.errors import MethodError
from fedsir.methods.base import (
    DROPPED_OUT,
    Client,
    ClientId,
    Federation,
    Method,
    Payload,
    Reply,
    Settings,
    Weights,
    client_task,
)
from fedsir.stages.split import ClientSplit, OffDiagonal, split_clients

if TYPE_CHECKING:
    from fedsir.data.arrays import Counts, Floats

TWO_CLASSES = "Give clients samples of two classes or more (data.partition, data.alpha)"


class Identify(Settings):
    """Stage I."""

    epochs: int = Field(5, ge=0, description="local epochs before the spectra (E₁); 0 = untouched initial model")
    lr: float = Field(5e-5, gt=0, description="Adam's learning rate")
    weight_decay: float = Field(5e-2, ge=0, description="L2 penalty inside Adam")
    min_class_samples: int = Field(20, ge=1, description="classes with fewer samples do not count")
    features: Literal["augmented", "plain"] = Field("augmented", description="images behind the spectra")
    split: Literal["always", "auto"] = Field(
        "always", description="two groups always, or only where the evidence speaks for them"
    )


class SpectralIdentification(Method):
    """A method that begins with Stage I; its Config has a group `identify`."""

    def check(self, counts: Counts) -> None:
        if int((counts > 0).sum(axis=1).max()) < 2:
            raise self._nobody_is_clean(f"none has two classes to compare. {TWO_CLASSES}")

    def find_noisy_clients(self, fed: Federation, model: Weights) -> tuple[ClientSplit, Mapping[ClientId, Reply]]:
        """Ask everybody for two numbers and split clean from noisy; return the split and the replies."""
        replies = fed.ask("identify", fed.clients, model=model)
        told = {k: OffDiagonal(**reply["statistics"]) for k, reply in replies.items()}
        split = split_clients(told, self.config.identify.split, unheard=fed.failures)
        if not split.clean:
            raise self._nobody_is_clean(_reasons(split, fed.failures))
        return split, replies

    def _nobody_is_clean(self, why_and_what_to_do: str) -> MethodError:
        return MethodError(
            f"Stage I of {self.name} could call no client clean: {why_and_what_to_do}, or use a method that needs no "
            "clean client (fedavg)."
        )

    def start_epochs(self) -> float:
        features = 0.3  # a forward pass
        return float(self.config.identify.epochs + features)

    @client_task
    def identify(self, client: Client, model: Weights) -> Reply:
        """Train a little, then tell mean and energy of the off-diagonal class similarities."""
        similarity, reply = self.class_similarity(client, model)
        return reply | {"statistics": asdict(stages.identify.off_diagonal_stats(similarity))}

    def class_similarity(self, client: Client, model: Weights) -> tuple[Floats, Payload]:
        """Return the class similarities of a client that has trained a little, (C, C), and what training tells.

        The matrix stays with the client; the paper's Figure 2 shows it.
        """
        config = self.config.identify
        module = client.module(model)
        told: Payload = {}
        if config.epochs > 0:
            loss = methods.local_training.train_locally(
                client,
                module,
                methods.local_training.cross_entropy,
                epochs=config.epochs,
                batch_size=self.config.batch_size,
                lr=config.lr,
                weight_decay=config.weight_decay,
            )
            told = methods.local_training.trained_reply(client, module, loss)
        collected = methods.local_training.class_features_of(
            client, module, is_augmented=config.features == "augmented"
        )
        directions = stages.identify.class_directions(collected, config.min_class_samples)
        return stages.identify.class_similarity(directions), told


def _reasons(split: ClientSplit, failures: Mapping[ClientId, str]) -> str:
    if not split.not_assessed:
        return "its mixture put everybody into the noisy group. Set method.identify.split = auto"
    client, reason = next(iter(split.not_assessed.items()))
    way_out = "Put that right" if client in failures else TWO_CLASSES
    if reason == DROPPED_OUT:
        way_out = "Lower dropout"
    return f"{len(split.not_assessed)} could not be assessed (client {client}: {reason}). {way_out}"
