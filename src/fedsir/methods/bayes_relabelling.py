"""Stage II of the preset `plus`: clean clients send sums, noisy clients weigh features and given labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import reduce
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch

from fedsir.data.shapes import Shape
from fedsir.methods.local_training import stream_features
from fedsir.methods.replies import ClientId, FieldOf, Reply
from fedsir.stages.bayes import SURE, Temperature, likeliest_scores, weigh_labels
from fedsir.stages.discriminant import (
    Booleans,
    ClassMoments,
    Discriminant,
    Float32,
    class_moments,
    discriminant,
    discriminant_scores,
    is_missing,
    on_the_wire,
    with_missing_classes,
)
from fedsir.stages.noise_rates import probability_noisy
from fedsir.stages.spectrum import Array, Labels

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fedsir.methods.base import Client, Federation
    from fedsir.methods.fedsir import Taught
    from fedsir.methods.fedsir_settings import FedSIRConfig


@dataclass(frozen=True)
class Summed(Reply):
    """What a noisy client sends of classes that no clean client owns.

    counts : how many samples have each of these classes as their label now, corrected or not; 0 for other classes
    sums : sum of their features; zeros for other classes
    """

    counts: Annotated[Labels, Shape("classes", kind="int")]
    sums: Annotated[Float32, Shape("classes", "features")]

    def fault(self) -> str | None:
        return "counts: a count is negative" if bool((self.counts < 0).any()) else None


AskNoisy = Callable[[Booleans], Mapping[ClientId, Summed]]


def taught(config: FedSIRConfig, client: Client, module: nn.Module) -> dict[str, ClassMoments]:
    """Return what a clean client sends of its classes, as a field of `Taught`."""
    return {"moments": moments_of(client, module, config.min_class_samples)}


def gathered(
    config: FedSIRConfig, from_clean: Mapping[ClientId, Taught], fed: Federation, ask_noisy: AskNoisy
) -> dict[str, Any] | None:
    """Return the discriminant of the clean clients' classes as a payload; None without any.

    Classes that no clean client owns look as they do on the noisy clients: else they would never be assigned, and wrong
    labels of them never corrected.
    """
    del config
    moments = []
    for k, each in FieldOf("moments", from_clean).items():
        if each is None:
            fed.reject(k, "it sent no sums of its features")
        else:
            moments.append(each)
    if not any(each.counts.any() for each in moments):
        return None
    total = reduce(ClassMoments.__add__, moments)
    missing = is_missing(total)
    if missing.any():
        total = with_missing_classes(total, *_summed(ask_noisy(missing), total.sums.shape, fed))
    return vars(discriminant([total]))


def _summed(replies: Mapping[ClientId, Summed], shape: tuple[int, ...], fed: Federation) -> tuple[Labels, Array]:
    """Return counts (C,) and feature sums (C, d) of all replies together."""
    counts, sums = np.zeros(shape[0], np.int64), np.zeros(shape)
    for k, reply in replies.items():
        if reply.sums.shape != shape:
            fed.reject(k, f"its sums have {reply.sums.shape[1]} features, the clean clients' have {shape[1]}")
        else:
            counts, sums = counts + reply.counts, sums + reply.sums
    return counts, sums


def corrected(
    config: FedSIRConfig, client: Client, module: nn.Module, references: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Return what a noisy client remembers of its corrected labels."""
    given, scores = client.data.labels.numpy(), scores_of(client, module, references)
    known, first = client.state.get("temperature"), client.state.get("first_scores")
    stage_one = Temperature() if known is None else Temperature(float(known))
    if first is None or config.relabel.evidence == "round" or not _own_the_same(first.numpy(), scores):
        posterior = weigh_labels(scores, given, belief=stage_one)
    else:
        looks = ((first.numpy().astype(np.float64), stage_one), (scores, Temperature()))
        posterior = weigh_labels(likeliest_scores(looks, given), given, temperature=1.0)
    likely = probability_noisy(posterior, given)
    probabilities = torch.from_numpy(posterior.probabilities.astype(np.float32))
    return {
        "corrected_labels": torch.from_numpy(posterior.labels),
        "label_probabilities": probabilities,
        "is_undecided": probabilities.amax(dim=1) < SURE,
        "noise_rate": torch.tensor(np.nan if posterior.noise_rate is None else posterior.noise_rate),
        "probability_noisy": torch.tensor(np.nan if likely is None else likely),
    }


def _own_the_same(one: Array, other: Array) -> bool:
    """Whether two scores (n, C) are of the same classes, so that likelihoods are of the same labels."""
    return np.array_equal(np.isfinite(one[0]), np.isfinite(other[0]))


def moments_of(client: Client, module: nn.Module, min_class_samples: int) -> ClassMoments:
    """Return sums of the client's features under `module` by GIVEN label, as they travel.

    Samples of a class with fewer than `min_class_samples` are in none of the sums.
    """
    labels, n_classes = client.data.labels.numpy(), client.data.n_classes
    leaves = (np.bincount(labels, minlength=n_classes) >= min_class_samples)[labels]  # (n,)
    parts = (
        class_moments(
            features.cpu().numpy()[leaves[rows.numpy()]], labels[rows.numpy()][leaves[rows.numpy()]], n_classes
        )
        for features, rows in stream_features(client, module)
    )
    return on_the_wire(reduce(ClassMoments.__add__, parts))


def sums_of(client: Client, module: nn.Module, classes: Booleans, min_class_samples: int) -> Summed:
    """Return count and feature sum of some classes (C,), by the labels that the client has now."""
    labels = client.labels.numpy()
    counts = np.bincount(labels, minlength=client.data.n_classes)
    counts = np.where(classes & (counts >= min_class_samples), counts, 0)
    of_class = np.where(counts > 0, np.arange(len(counts)), -1)[labels]  # (n,), -1 for samples that are not asked for
    parts = [
        (of_class[rows.numpy()][None, :] == np.arange(len(counts))[:, None]) @ features.cpu().numpy().astype(np.float64)
        for features, rows in stream_features(client, module)
    ]
    return Summed(counts, np.sum(parts, axis=0).astype(np.float32))


def scores_of(client: Client, module: nn.Module, references: dict[str, Tensor]) -> Array:
    """Return what each of the client's samples looks like under `module`, (n, C)."""
    fitted = discriminant_in(references)
    parts = [discriminant_scores(features.cpu().numpy(), fitted) for features, _ in stream_features(client, module)]
    return np.concatenate(parts)


def discriminant_in(references: dict[str, Tensor]) -> Discriminant:
    """Return the discriminant that came with a message."""
    return Discriminant(**{field.name: references[field.name].numpy() for field in fields(Discriminant)})
