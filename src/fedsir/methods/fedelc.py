"""FedELC (Jiang et al., CIKM 2024): finds noisy clients by their losses; these learn their labels with their model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from fedsir.methods import fedelc_math as maths
from fedsir.methods.base import Client, Federation, client_task
from fedsir.methods.baseline_settings import FedELCConfig
from fedsir.methods.local_training import Batch, predictions, train_with, training_predictions
from fedsir.methods.loss_identification import LossIdentification
from fedsir.methods.replies import ClientId, Trained, Weights
from fedsir.models.weights import weights_of

LABEL_BATCH = 64  # the authors' batch: λ is divided by it, whatever the batch size, so that labels keep their speed


@dataclass(frozen=True)
class TrainedWithLabels(Trained):
    """A noisy client's model, trained together with its labels.

    n_corrected : how many of its labels are not the given ones now
    """

    n_corrected: int


class FedELC(LossIdentification[FedELCConfig]):
    name = "fedelc"
    Config = FedELCConfig

    def ask_noisy(
        self, t: int, noisy: Sequence[ClientId], model: Weights, fed: Federation
    ) -> Mapping[ClientId, Trained]:
        del t  # every round is alike
        replies = fed.ask(self.train_noisy, noisy, model=model)
        fed.record(relabelled=sum(reply.n_corrected for reply in replies.values()))
        return replies

    @client_task
    def train_noisy(self, client: Client, model: Weights) -> TrainedWithLabels:
        """Train model and label logits together; asked of noisy participants after the warm-up.

        The labels are then merged with the trained model's predictions.
        """
        config, given = self.config.labels, client.data.labels.to(client.device)
        kept = client.state.get("label_logits")
        label_logits = (
            maths.first_label_logits(given, client.data.n_classes, config.scale)
            if kept is None
            else kept.to(client.device)
        )

        def loss_of(module: nn.Module, batch: Batch) -> Tensor:
            logits, labels, own = module(batch.images), given[batch.index], label_logits[batch.index]
            gradient = maths.label_gradient(logits, own, labels, compatibility=config.compatibility)
            # The paper takes this step at the end of the epoch. No other batch of the epoch reads these rows.
            label_logits[batch.index] = own - config.lr / LABEL_BATCH * gradient
            return maths.label_correction_loss(
                logits, own, labels, compatibility=config.compatibility, entropy=config.entropy
            )

        module = client.module(model)
        loss = train_with(self, client, module, loss_of)
        weights = weights_of(module)  # before predictions in training mode move running statistics
        predicted = (
            predictions(client, module)
            if config.predict == "plain"
            else training_predictions(client, module, self.config.batch_size)
        )
        merged = maths.merged_label_logits(label_logits, predicted, config.scale)
        client.state["label_logits"] = merged.cpu()
        client.state["corrected_labels"] = merged.argmax(dim=1).cpu()
        return TrainedWithLabels(weights, len(client.data), loss, n_corrected=client.n_corrected)
