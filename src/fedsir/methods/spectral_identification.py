"""FedSIR's Stage I as methods share it: its settings, its client task, and the server's part that asks and splits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Literal

from pydantic import Field

from fedsir import methods, stages
from fedsir.errors import MethodError
from fedsir.methods.base import Client, ClientId, Federation, Method, Payload, Reply, Settings, Weights, client_task
from fedsir.stages.split import ClientSplit, OffDiagonal, split_clients


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

    def find_noisy_clients(self, fed: Federation, model: Weights) -> tuple[ClientSplit, Mapping[ClientId, Reply]]:
        """Ask everybody for two numbers and split clean from noisy; return the split and the replies."""
        replies = fed.ask("identify", fed.clients, model=model)
        told = {k: OffDiagonal(**reply["statistics"]) for k, reply in replies.items()}
        split = split_clients(told, self.config.identify.split, unheard=fed.failures)
        if not split.clean:
            raise MethodError(
                f"No client could be called clean: {_reasons(split)} Give clients more samples per class, lower "
                "method.identify.min_class_samples, or use a method that needs no clean client (fedavg)."
            )
        return split, replies

    def start_epochs(self) -> float:
        features = 0.3  # a forward pass
        return float(self.config.identify.epochs + features)

    @client_task
    def identify(self, client: Client, model: Weights) -> Reply:
        """Train a little, then tell mean and energy of the off-diagonal class similarities."""
        config = self.config.identify
        module = client.module(model)
        reply: Payload = {}
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
            reply = methods.local_training.trained_reply(client, module, loss)
        collected = methods.local_training.class_features_of(
            client, module, is_augmented=config.features == "augmented"
        )
        directions = stages.identify.class_directions(collected, config.min_class_samples)
        statistics = stages.identify.off_diagonal_stats(stages.identify.class_similarity(directions))
        return reply | {"statistics": asdict(statistics)}


def _reasons(split: ClientSplit) -> str:
    first = next(iter(split.not_assessed.items()), None)
    return f"{len(split.not_assessed)} could not be assessed (client {first[0]}: {first[1]})." if first else ""
