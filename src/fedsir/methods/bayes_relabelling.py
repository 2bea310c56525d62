"""Stage II of the preset `plus`: clean clients send sums, noisy clients weigh features and given labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fedsir.methods.local_training import stream_features
from fedsir.methods.replies import ClientId, FieldOf
from fedsir.stages.bayes import (
    SURE,
    ClassMoments,
    Discriminant,
    Temperature,
    class_moments,
    discriminant,
    discriminant_scores,
    on_the_wire,
    weigh_labels,
)
from fedsir.stages.spectrum import Array

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fedsir.methods.base import Client, Federation
    from fedsir.methods.fedsir import Taught
    from fedsir.methods.fedsir_settings import FedSIRConfig


def taught(config: FedSIRConfig, client: Client, module: nn.Module) -> dict[str, ClassMoments]:
    """Return what a clean client sends of its classes, as a field of `Taught`."""
    return {"moments": moments_of(client, module, config.min_class_samples)}


def gathered(config: FedSIRConfig, from_clean: Mapping[ClientId, Taught], fed: Federation) -> dict[str, Any] | None:
    """Return the discriminant of the clean clients' classes as a payload; None without any."""
    del config
    moments = []
    for k, each in FieldOf("moments", from_clean).items():
        if each is None:
            fed.reject(k, "it sent no sums of its features")
        else:
            moments.append(each)
    has_classes = any(each.counts.any() for each in moments)
    return vars(discriminant(moments)) if has_classes else None


def corrected(
    config: FedSIRConfig, client: Client, module: nn.Module, references: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Return what a noisy client remembers of its corrected labels."""
    del config
    given, known = client.data.labels.numpy(), client.state.get("temperature")
    belief = Temperature() if known is None else Temperature(float(known))
    posterior = weigh_labels(scores_of(client, module, references), given, belief=belief)
    probabilities = torch.from_numpy(posterior.probabilities.astype(np.float32))
    return {
        "corrected_labels": torch.from_numpy(posterior.labels),
        "label_probabilities": probabilities,
        "is_undecided": probabilities.amax(dim=1) < SURE,
        "noise_rate": torch.tensor(np.nan if posterior.noise_rate is None else posterior.noise_rate),
    }


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


def scores_of(client: Client, module: nn.Module, references: dict[str, Tensor]) -> Array:
    """Return what each of the client's samples looks like under `module`, (n, C)."""
    fitted = Discriminant(**{field.name: references[field.name].numpy() for field in fields(Discriminant)})
    parts = [discriminant_scores(features.cpu().numpy(), fitted) for features, _ in stream_features(client, module)]
    return np.concatenate(parts)
