"""RoFL (Yang et al., Robust Federated Learning with Noisy Labels, 2022): clients agree on class centroids.

A label is trusted where the nearest centroid is that of its class; elsewhere the global model's answer replaces it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field

from fedsir import methods, stages
from fedsir.methods.base import Client, Federation, Method, MethodConfig, Reply, ServerState, Weights, client_task
from fedsir.methods.fedavg import average_by_samples, mean_loss
from fedsir.methods.reply_views import Joined
from fedsir.methods.workload import FORWARD_SHARE

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fedsir.methods.local_training import Batch

COSINES = 0.02  # of a training epoch, about


class RoFLConfig(MethodConfig):
    forget_rate: float = Field(0.2, ge=0, lt=1, description="share of a batch with the largest loss left out (F)")
    forget_ramp: float | None = Field(
        None, ge=0, description="rounds over which that share grows from 0 (T_k); 10 per 100 rounds"
    )
    pseudo_label_from: float | None = Field(
        None, ge=0, description="round r from which pseudo-labels are used (T_pl); 10 per 100 rounds"
    )
    central_weight: float = Field(1.0, ge=0, description="weight of the distance to centroids (λ_cen)")
    central_gradient: bool = Field(
        False, description="whether that distance has a gradient: the published code has none, the paper has"
    )
    entropy_weight: float = Field(0.8, ge=0, description="weight of the entropy, which is minimised (λ_e)")
    average: Literal["clients", "samples"] = Field("clients", description="models averaged alike, or by sample count")

    def scaled_to(self, rounds: int) -> Self:
        ramp, begin = self.forget_ramp, self.pseudo_label_from
        return self.model_copy(
            update={
                "forget_ramp": 0.1 * rounds if ramp is None else ramp,
                "pseudo_label_from": 0.1 * rounds if begin is None else begin,
            }
        )


@dataclass(frozen=True)
class RoFLState(ServerState):
    centroids: Tensor | None = None  # (C, d); a row of zeros is a class that nobody has shown yet


class RoFL(Method):
    name = "rofl"
    summary = "clients share class centroids; where a label is far from its own, the global model's answer replaces it"
    Config = RoFLConfig
    State = RoFLState
    config: RoFLConfig

    def round(self, t: int, state: RoFLState, fed: Federation) -> RoFLState:
        replies = fed.ask(
            "train",
            fed.participants,
            model=state.model,
            centroids=state.centroids,
            forget_rate=self.forget_rate(t),
            central_weight=self.central_weight(t),
            has_pseudo_labels=self.has_pseudo_labels(t),
        )
        usable = _of_one_shape(replies, state.centroids, fed)
        n_kept = sum(reply["n_kept"] for reply in usable.values())
        n_confident = sum(reply["n_confident"] for reply in usable.values())
        fed.record(
            loss=mean_loss(usable),
            forget_rate=self.forget_rate(t),
            central_weight=self.central_weight(t),
            has_pseudo_labels=self.has_pseudo_labels(t),
            confident_share=n_confident / n_kept if n_kept else None,
        )
        if not usable:
            return state
        by_client = (reply["centroids"] for reply in usable.values())
        n_samples = [reply["n_samples"] for reply in usable.values()]
        return RoFLState(
            model=self.averaged(usable), centroids=methods.rofl_math.agreed(state.centroids, by_client, n_samples)
        )

    def equivalent_epochs(self, rounds: int) -> float:
        n_passes = sum(t == 1 or self.has_pseudo_labels(t) for t in range(1, rounds + 1))  # see look_around
        return rounds * (self.config.epochs + COSINES) + n_passes * FORWARD_SHARE

    def averaged(self, replies: Mapping[str, Reply]) -> Weights:
        if self.config.average == "samples":
            return average_by_samples(replies)
        return stages.train.average_models((reply["model"] for reply in replies.values()), [1.0] * len(replies))

    def forget_rate(self, t: int) -> float:
        """Return F(r) for r = t - 1."""
        assert self.config.forget_ramp is not None, "scaled_to fills it in"
        return self.config.forget_rate * _risen(t - 1, self.config.forget_ramp)

    def central_weight(self, t: int) -> float:
        """Return λ_cen(r) for r = t - 1."""
        assert self.config.pseudo_label_from is not None, "scaled_to fills it in"
        return self.config.central_weight * _risen(t - 1, self.config.pseudo_label_from)

    def has_pseudo_labels(self, t: int) -> bool:
        assert self.config.pseudo_label_from is not None, "scaled_to fills it in"
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
    ) -> Reply:
        """Train on small-loss samples with guided labels, moving the centroids along with every step."""
        module = client.module(model)
        pseudo_labels, own = self.look_around(client, module, centroids, has_pseudo_labels)
        # DEVIATES(published code): it sums the distance over samples and entries, without a gradient; with one it
        # would dwarf the cross-entropy, so here it is a mean.
        pull = central_weight if self.config.central_gradient else 0.0
        n_classes = client.data.n_classes
        n_kept, n_confident = 0, []

        def loss_of(module: nn.Module, batch: Batch) -> Tensor:
            nonlocal own, n_kept
            features: Tensor = module.features(batch.images)  # type: ignore[operator]
            logits: Tensor = module.head(features)  # type: ignore[operator]
            kept = methods.rofl_math.small_loss(logits, batch.labels, forget_rate)
            labels = batch.labels[kept]
            loss, is_confident = methods.rofl_math.guided_loss(
                logits[kept],
                features[kept],
                labels,
                None if pseudo_labels is None else pseudo_labels[batch.index[kept]],
                own,
                central_weight=pull,
                entropy_weight=self.config.entropy_weight,
            )
            batch_means = methods.rofl_math.class_means(features[kept].detach(), labels, n_classes)
            own = methods.rofl_math.moved(own, batch_means)
            n_kept += len(labels)
            n_confident.append(is_confident.sum())
            return loss

        loss = methods.local_training.train_with(client, module, loss_of, self.config)
        return methods.local_training.trained_reply(client, module, loss) | {
            "centroids": own,
            "n_kept": n_kept,
            "n_confident": int(sum(n_confident)),
        }

    def look_around(
        self, client: Client, module: nn.Module, centroids: Tensor | None, has_pseudo_labels: bool
    ) -> tuple[Tensor | None, Tensor]:
        """Return the global model's labels, (n,) if wanted, and the centroids to begin with, (C, d).

        Classes that nobody has shown yet begin with the mean of this client's own features.
        """
        given = client.data.labels
        if centroids is not None and not has_pseudo_labels and methods.rofl_math.is_known(centroids)[given].all():
            return None, centroids.to(client.device)
        stream = methods.local_training.stream_features(client, module, is_augmented=True)
        labels = given.to(client.device).split(methods.local_training.FEATURE_BATCH)
        pairs = ((features, own) for (features, _), own in zip(stream, labels, strict=True))
        predicted, means = methods.rofl_math.first_look(pairs, module.head, client.data.n_classes)  # type: ignore[arg-type]
        if centroids is not None:
            there = centroids.to(client.device)
            means = means.where(~methods.rofl_math.is_known(there)[:, None], there)
        return predicted if has_pseudo_labels else None, means


def _risen(r: int, over: float) -> float:
    return min(1.0, r / over) if over > 0 else 1.0


def _of_one_shape(replies: Mapping[str, Reply], centroids: Tensor | None, fed: Federation) -> Mapping[str, Reply]:
    """Return the replies whose centroids fit those of the server, or of most clients in the first round."""
    shapes = {k: tuple(reply["centroids"].shape) for k, reply in replies.items()}
    if not shapes:
        return {}
    expected = Counter(shapes.values()).most_common(1)[0][0] if centroids is None else tuple(centroids.shape)
    for k, shape in shapes.items():
        if shape != expected:
            fed.reject(k, f"its centroids are {shape}, not {expected}")
    return Joined([k for k in shapes if shapes[k] == expected], replies)
