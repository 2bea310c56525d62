"""FedLSR: its schedule, its second view, and each published peculiarity on both sides."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from fake_federation import FakeFederation, trained, weights
from fedsir.data.preprocessing import Preprocessing
from fedsir.methods.base import Client, ServerState
from fedsir.methods.fedlsr import FedLSR
from fedsir.methods.replies import Trained
from fedsir.models.weights import weights_of
from tiny_network import Tiny

MakeClient = Callable[..., Client]


def fedlsr(rounds: int = 100, **settings: Any) -> FedLSR:
    return FedLSR(batch_size=8, **settings).resolved(rounds)


def test_the_consistency_weight_warms_up() -> None:
    weights_over_time = [fedlsr().consistency_weight(t) for t in (1, 11, 21, 100)]
    assert weights_over_time == pytest.approx([0.0, 0.2, 0.4, 0.4])
    assert fedlsr(20).consistency_weight(3) == pytest.approx(0.2)  # r = 2 of t_w = 4
    assert fedlsr(warm_up=0).consistency_weight(1) == 0.4


def test_the_server_is_fedavg() -> None:
    replies = {"a": trained(0.0, 1, loss=1.0), "b": trained(8.0, 3, loss=3.0)}
    fed = FakeFederation("ab", lambda task, k: replies[k])
    state = fedlsr().round(11, ServerState(model=weights(5.0)), fed)
    assert state.model["w"].item() == 6.0
    assert fed.asked["train"].payload["consistency_weight"] == pytest.approx(0.2)
    assert fed.values == {"loss": 2.5, "consistency_weight": pytest.approx(0.2)}
    nobody = FakeFederation("ab", lambda task, k: replies[k], absent=("a", "b"))
    assert fedlsr().round(1, state, nobody).model["w"].item() == 6.0


# ---------------------------------------------------------------- the second view


def coloured(client: Client, *, flip: bool) -> Client:
    """Return the client with three channels; the network is not used."""
    data = client.data
    return replace(
        client,
        data=replace(
            data,
            images=data.images.expand(-1, 3, -1, -1),
            preprocessing=Preprocessing((0.5, 0.4, 0.3), (0.25, 0.5, 0.2), flip=flip, crop_padding=1),
        ),
    )


def normalised(n: int) -> torch.Tensor:
    """Return images (n, 3, 4, 4), from [0, 1] with the mean and deviation of `coloured`."""
    images = torch.rand(n, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in ((0.5, 0.4, 0.3), (0.25, 0.5, 0.2)))
    return (images - mean) / std


# draws: mirror, whether to jitter, brightness, contrast, saturation, hue, whether to grey
UNTOUCHED = [0.9, 0.0, 0.5, 0.5, 0.5, 0.5, 0.9]
DARK = [0.9, 0.0, 0.0, 0.5, 0.5, 0.5, 0.9]
MIRRORED = [0.1, 0.9, 0.5, 0.5, 0.5, 0.5, 0.9]


def test_colours_change_before_normalisation_each_image_its_own(make_client: MakeClient) -> None:
    images = normalised(3)
    view = fedlsr().second_view(coloured(make_client(), flip=True))
    seen = view(images, torch.tensor([UNTOUCHED, DARK, MIRRORED]))
    assert torch.allclose(seen[0], images[0], atol=1e-5)  # negative values survive
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in ((0.5, 0.4, 0.3), (0.25, 0.5, 0.2)))
    assert torch.allclose(seen[1], (0.2 * (images[1] * std + mean) - mean) / std, atol=1e-5)
    assert torch.allclose(seen[2], images[2].flip(2), atol=1e-5)


def test_published_jitter_is_one_draw_on_the_normalised_tensor_and_loses_negative_values(
    make_client: MakeClient,
) -> None:
    images = normalised(3)
    assert images.min() < 0
    view = fedlsr(view={"of": "normalised"}).second_view(coloured(make_client(), flip=True))
    seen = view(images, torch.tensor([UNTOUCHED, DARK, MIRRORED]))
    assert torch.allclose(seen, images.clamp(0, 1), atol=1e-5)  # the first draw for all: factors of one, but clamped
    mirrored = view(images, torch.tensor([MIRRORED, DARK, DARK]))
    assert torch.equal(mirrored, images.flip(3))  # not jittered, so not clamped


def test_what_must_not_be_mirrored_is_not(make_client: MakeClient) -> None:
    images = normalised(1)
    view = fedlsr().second_view(coloured(make_client(), flip=False))
    assert torch.allclose(view(images, torch.tensor([MIRRORED])), images, atol=1e-5)


@pytest.mark.parametrize(
    "view",
    [{"strength": 0.4}, {"hue": 0.05}, {"jitter_chance": 0.3}, {"grey_chance": 0.5}],
    ids=lambda view: next(iter(view)),
)
def test_every_setting_of_the_view_matters(view: dict[str, float], make_client: MakeClient) -> None:
    images, client = normalised(1), coloured(make_client(), flip=False)
    drawn = torch.tensor([[0.9, 0.5, 0.2, 0.3, 0.4, 0.9, 0.3]])  # jittered, not grey
    usual, other = (fedlsr(**settings).second_view(client)(images, drawn) for settings in ({}, {"view": view}))
    assert not torch.allclose(usual, other, atol=1e-3)


# ---------------------------------------------------------------- training


def train(client: Client, weight: float = 0.4, **settings: Any) -> Trained:
    return fedlsr(**settings).train(client, model=weights_of(Tiny()), consistency_weight=weight)


def test_the_published_loss_lies_within_its_bounds(make_client: MakeClient) -> None:
    published = train(make_client(), weight=0.0, entropy_weight=0.0)
    assert 1.461 <= published.loss <= 2.462
    assert train(make_client(), weight=0.0, entropy_weight=0.0, double_softmax=False).loss > 2.462


@pytest.mark.parametrize(
    "settings",
    [
        {"double_softmax": False},
        {"view": {"of": "normalised"}},
        {"consistency_mean": "samples"},
        {"entropy_weight": 0.0},
        {"mix_temperature": 1.0},
        {"sharpness": 1.0},
        {"weight": 0.0},
    ],
)
def test_every_setting_matters(settings: dict[str, Any], make_client: MakeClient) -> None:
    usual, other = train(make_client()), train(make_client(), **settings)
    assert not torch.equal(usual.model["body.weight"], other.model["body.weight"])


def test_two_epochs_find_draws_enough(make_client: MakeClient) -> None:
    reply = train(make_client(9), epochs=2)  # batches of 9: the last of one joins
    assert reply.n_samples == 9 and 1 < reply.loss < 4
