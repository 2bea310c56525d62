"""FedELC (Jiang et al., CIKM 2024): finds noisy clients by their losses; these learn their labels with their model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from fedsir import methods
from fedsir.methods.base import Client, ClientId, Federation, Reply, Settings, Weights, client_task
from fedsir.methods.loss_identification import LossIdentification, LossIdentificationConfig

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fedsir.methods.local_training import Batch

LABEL_BATCH = 64  # the authors' batch: λ is divided by it, whatever the batch size, so that labels keep their speed


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


class FedELC(LossIdentification):
    name = "fedelc"
    summary = "finds noisy clients by their losses, corrects their labels by gradient, weighs them by distance"
    Config = FedELCConfig
    config: FedELCConfig

    def ask_noisy(self, t: int, noisy: Sequence[ClientId], model: Weights, fed: Federation) -> Mapping[ClientId, Reply]:
        del t  # every round is alike
        replies = fed.ask("train_noisy", noisy, model=model)
        fed.record(relabelled=sum(reply["n_corrected"] for reply in replies.values()))
        return replies

    def extra_epochs(self) -> float:
        return 0.3  # a forward pass to merge with

    @client_task
    def train_noisy(self, client: Client, model: Weights) -> Reply:
        """Train model and label logits together, then merge the labels with the trained model's predictions."""
        config, given = self.config.labels, client.data.labels.to(client.device)
        kept = client.state.get("label_logits")
        label_logits = (
            methods.fedelc_math.first_label_logits(given, client.data.n_classes, config.scale)
            if kept is None
            else kept.to(client.device)
        )

        def loss_of(module: nn.Module, batch: Batch) -> Tensor:
            logits, labels, own = module(batch.images), given[batch.index], label_logits[batch.index]
            gradient = methods.fedelc_math.label_gradient(logits, own, labels, compatibility=config.compatibility)
            # The paper takes this step at the end of the epoch. No other batch of the epoch reads these rows.
            label_logits[batch.index] = own - config.lr / LABEL_BATCH * gradient
            return methods.fedelc_math.label_correction_loss(
                logits, own, labels, compatibility=config.compatibility, entropy=config.entropy
            )

        module = client.module(model)
        loss = methods.local_training.train_with(client, module, loss_of, self.config)
        reply = methods.local_training.trained_reply(client, module, loss)
        predicted = (
            methods.local_training.predictions(client, module)
            if config.predict == "plain"
            else methods.local_training.training_predictions(client, module, self.config.batch_size)
        )
        merged = methods.fedelc_math.merged_label_logits(label_logits, predicted, config.scale)
        client.state["label_logits"] = merged.cpu()
        client.state["corrected_labels"] = merged.argmax(dim=1).cpu()
        return reply | {"n_corrected": client.n_corrected}
