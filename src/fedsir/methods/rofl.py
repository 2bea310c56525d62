"""RoFL (Yang et al., Robust Federated Learning with Noisy Labels, 2022): clients agree on class centroids.

A label is trusted where the nearest centroid is that of its class; elsewhere the global model's answer replaces it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from torch import Tensor, nn

from fedsir.data.shapes import Shape
from fedsir.methods import rofl_math as maths
from fedsir.methods.averaging import average_by_samples, mean_loss
from fedsir.methods.base import Client, Federation, Method, Payload, ServerState, client_task
from fedsir.methods.baseline_settings import RoFLConfig
from fedsir.methods.local_training import Batch, stream_features, train_with
from fedsir.methods.replies import ClientId, Trained, Weights
from fedsir.methods.settings import risen
from fedsir.models.weights import weights_of
from fedsir.stages.train import average_models


@dataclass(frozen=True)
class RoFLState(ServerState):
    centroids: Tensor | None = None  # (C, d); a row of zeros is a class that nobody has shown yet


@dataclass(frozen=True)
class TrainedWithCentroids(Trained):
    """A client's model, and where its classes lie.

    centroids : mean feature of each class, moved along with training; zeros for a class that nobody has shown
    n_kept : samples that training used, of all epochs together
    n_confident : of these, samples whose nearest centroid is that of their label
    """

    centroids: Annotated[Tensor, Shape("classes", "features")]
    n_kept: int
    n_confident: int


class RoFL(Method[RoFLConfig, RoFLState]):
    name = "rofl"
    Config = RoFLConfig
    State = RoFLState

    def round(self, t: int, state: RoFLState, fed: Federation) -> RoFLState:
        schedule: Payload = {
            "forget_rate": self.forget_rate(t),
            "central_weight": self.central_weight(t),
            "has_pseudo_labels": self.has_pseudo_labels(t),
        }
        replies = fed.ask(self.train, fed.participants, model=state.model, centroids=state.centroids, **schedule)
        n_kept = sum(reply.n_kept for reply in replies.values())
        n_confident = sum(reply.n_confident for reply in replies.values())
        fed.record(loss=mean_loss(replies), **schedule, confident_share=n_confident / n_kept if n_kept else None)
        if not replies:
            return state
        by_client = (reply.centroids for reply in replies.values())
        n_samples = [reply.n_samples for reply in replies.values()]
        return RoFLState(model=self.averaged(replies), centroids=maths.agreed(state.centroids, by_client, n_samples))

    def averaged(self, replies: Mapping[ClientId, Trained]) -> Weights:
        if self.config.average == "samples":
            return average_by_samples(replies)
        return average_models((reply.model for reply in replies.values()), [1.0] * len(replies))

    def forget_rate(self, t: int) -> float:
        """Return F(r) for r = t - 1."""
        return self.config.forget_rate * risen(t, self.config.forget_ramp)

    def central_weight(self, t: int) -> float:
        """Return λ_cen(r) for r = t - 1."""
        return self.config.central_weight * risen(t, self.config.pseudo_label_from)

    def has_pseudo_labels(self, t: int) -> bool:
        return t - 1 >= self.config.pseudo_label_from

    # ------------------------------------------------------------------ on the client

    @client_task
    def train(
        self,
        client: Client,
        model: Weights,
        centroids: Tensor | None,
        forget_rate: float,
        central_weight: float,
        has_pseudo_labels: bool,
    ) -> TrainedWithCentroids:
        """Train on small-loss samples with guided labels, moving centroids; asked of every round's participants."""
        module = client.module(model)
        pseudo_labels, own = self.pseudo_labels_and_centroids(client, module, centroids, has_pseudo_labels)
        # DEVIATES(published code): it sums the distance over samples and entries, without a gradient; with one it
        # would dwarf the cross-entropy, so here it is a mean.
        pull = central_weight if self.config.central_gradient else 0.0
        n_classes = client.data.n_classes
        n_kept, n_confident = 0, []

        def loss_of(module: nn.Module, batch: Batch) -> Tensor:
            nonlocal own, n_kept
            features: Tensor = module.features(batch.images)  # type: ignore[operator]
            logits: Tensor = module.head(features)  # type: ignore[operator]
            kept = maths.small_loss(logits, batch.labels, forget_rate)
            labels = batch.labels[kept]
            loss, is_confident = maths.guided_loss(
                logits[kept],
                features[kept],
                labels,
                None if pseudo_labels is None else pseudo_labels[batch.index[kept]],
                own,
                central_weight=pull,
                entropy_weight=self.config.entropy_weight,
            )
            batch_means = maths.class_means(features[kept].detach(), labels, n_classes)
            own = maths.moved(own, batch_means)
            n_kept += len(labels)
            n_confident.append(is_confident.sum())
            return loss

        loss = train_with(self, client, module, loss_of)
        return TrainedWithCentroids(
            weights_of(module), len(client.data), loss, centroids=own, n_kept=n_kept, n_confident=int(sum(n_confident))
        )

    def pseudo_labels_and_centroids(
        self, client: Client, module: nn.Module, centroids: Tensor | None, has_pseudo_labels: bool
    ) -> tuple[Tensor | None, Tensor]:
        """Return the global model's labels, (n,) if wanted, and the centroids to begin with, (C, d).

        Classes that nobody has shown yet begin with the mean of this client's own features.
        """
        given = client.data.labels
        if centroids is not None and not has_pseudo_labels and maths.is_known(centroids)[given].all():
            return None, centroids.to(client.device)
        stream = stream_features(client, module, is_augmented=True)
        pairs = ((features, given[rows].to(client.device)) for features, rows in stream)
        predicted, means = maths.first_look(pairs, module.head, client.data.n_classes)  # type: ignore[arg-type]
        if centroids is not None:
            there = centroids.to(client.device)
            means = means.where(~maths.is_known(there)[:, None], there)
        return predicted if has_pseudo_labels else None, means
