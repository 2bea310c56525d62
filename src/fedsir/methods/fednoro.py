"""FedNoRo (Wu et al., IJCAI 2023): finds noisy clients by their losses, distils the global model into them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from fedsir.methods.base import Client, Federation, client_task
from fedsir.methods.baseline_settings import FedNoRoConfig
from fedsir.methods.local_training import Batch, teacher_logits, train_with, trained
from fedsir.methods.loss_identification import LossIdentification
from fedsir.methods.replies import ClientId, Trained, Weights
from fedsir.stages.train import kd_ramp, la_kd_loss


class FedNoRo(LossIdentification[FedNoRoConfig]):
    name = "fednoro"
    Config = FedNoRoConfig

    def ask_noisy(
        self, t: int, noisy: Sequence[ClientId], model: Weights, fed: Federation
    ) -> Mapping[ClientId, Trained]:
        kd_weight = self.kd_weight(t)
        fed.record(kd_weight=kd_weight)
        return fed.ask(self.train_noisy, noisy, model=model, kd_weight=kd_weight)

    def kd_weight(self, t: int) -> float:
        kd = self.config.kd
        return kd_ramp(t - 1, peak=kd.weight, begin=kd.ramp_begin, end=kd.ramp_end)

    @client_task
    def train_noisy(self, client: Client, model: Weights, kd_weight: float) -> Trained:
        """Train with logit adjustment, distilling the global model; asked of noisy participants after the warm-up."""
        adjustment = self.adjustment(client)
        teacher = client.module(model)

        def loss_of(module: nn.Module, batch: Batch) -> Tensor:
            return la_kd_loss(
                module(batch.images),
                teacher_logits(teacher, batch.images),
                batch.labels,
                adjustment,
                weight=kd_weight,
                temperature=self.config.kd.temperature,
            )

        module = client.module(model)
        return trained(client, module, train_with(self, client, module, loss_of))
