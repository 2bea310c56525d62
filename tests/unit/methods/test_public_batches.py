"""Public images in batches: the same for everybody, of one size, and steps of training on them."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn

from fedsir.data.source import Source
from fedsir.errors import MethodError
from fedsir.methods.base import Client, Server
from fedsir.methods.public_batches import PublicBatches, answers_to, learn
from fedsir.models.weights import weights_of
from fedsir.randomness import KeyedRandom
from tiny_network import Tiny

MakeClient = Callable[..., Client]


@pytest.fixture
def client(make_client: MakeClient, digits: Source) -> Client:
    made = make_client()
    made.public = torch.from_numpy(digits.test_images[:10])
    return made


def stacked(public: PublicBatches) -> torch.Tensor:
    return torch.cat(list(public.images(0, public.n_batches)))


@pytest.mark.parametrize(("batch_size", "n_batches", "size"), [(4, 2, 4), (256, 1, 10)])
def test_one_pass_drops_what_is_no_whole_batch(batch_size: int, n_batches: int, size: int, client: Client) -> None:
    public = PublicBatches(client, draw=1, batch_size=batch_size)
    assert (public.n_batches, public.size, public.n_images) == (n_batches, size, 10)
    assert [batch.shape for batch in public.images(0, n_batches)] == [(size, 1, 8, 8)] * n_batches


def test_more_batches_than_a_pass_has_go_round_again(client: Client) -> None:
    uncropped = replace(client.data.preprocessing, crop_padding=0)  # so that an image is recognised
    client.data = replace(client.data, preprocessing=uncropped)
    public = PublicBatches(client, draw=1, batch_size=5, n_batches=5)
    batches = [{image.numpy().tobytes() for image in batch} for batch in public.images(0, 5)]
    assert len(batches) == 5
    for first, second in ((0, 1), (2, 3)):
        assert len(batches[first] | batches[second]) == 10  # each pass sees every image once
    assert batches[0] != batches[2]


def test_the_draw_alone_decides(client: Client, make_client: MakeClient) -> None:
    other = make_client(5, task="another")
    other.public = client.public
    once = stacked(PublicBatches(client, 7, 4))
    assert torch.equal(once, stacked(PublicBatches(other, 7, 4)))
    assert not torch.equal(once, stacked(PublicBatches(client, 8, 4)))
    server = Server(
        random=KeyedRandom(0),
        new_module=Tiny,
        device="cpu",
        preprocessing=client.data.preprocessing,
        public=client.public,
    )
    assert torch.equal(once, stacked(PublicBatches(server, 7, 4)))


def test_some_batches_are_those_of_the_whole(client: Client) -> None:
    public = PublicBatches(client, 7, 3)
    whole = list(public.images(0, 3))
    assert torch.equal(next(public.images(1, 2)), whole[1])
    assert torch.equal(torch.cat(list(public.images(1, 3))), torch.cat(whole[1:]))


def test_without_public_images_it_says_so(make_client: MakeClient) -> None:
    with pytest.raises(MethodError, match=r"set data\.public"):
        PublicBatches(make_client(), 1, 4)


def test_answers_are_probabilities_of_the_training_mode(client: Client) -> None:
    module, public = Tiny(), PublicBatches(client, 1, 5)
    (first, _) = public.images(0, 2)
    found = answers_to(module, public.images(0, 2))
    assert found.shape == (10, 10)
    assert found.sum(dim=1).tolist() == pytest.approx([1.0] * 10)
    with torch.no_grad():
        assert torch.equal(found[:5], Tiny().train()(first).softmax(dim=1))
    assert int(module.norm.num_batches_tracked) == 2


# ---------------------------------------------------------------- steps


def towards(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (logits - target).square().mean()


def pairs(n: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(6, 1, 8, 8, generator=generator), torch.full((6, 10), float(i))) for i in range(n)]


def trained(n: int, **settings: object) -> Tiny:
    module = Tiny()
    learn(module, pairs(n), towards, adam(module), **settings)  # type: ignore[arg-type]
    return module


def adam(module: nn.Module) -> Callable[[], torch.optim.Optimizer]:
    return lambda: torch.optim.Adam(module.parameters(), lr=0.01)


def same(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(weights_of(one).values(), weights_of(other).values(), strict=True))


def test_a_fresh_adam_moves_every_weight_by_the_learning_rate_in_every_step() -> None:
    module = Tiny()
    before = module.head.bias.detach().clone()
    losses, _ = learn(module, pairs(2)[1:] * 3, towards, adam(module), is_fresh=True)
    assert len(losses) == 3 and losses[0] > losses[-1]
    assert torch.allclose(module.head.bias - before, torch.tensor(0.03), atol=1e-5)  # sign of the gradient, 3 times


def test_a_kept_adam_goes_on_where_it_was() -> None:
    whole = trained(4)
    module = Tiny()
    _, moments = learn(module, pairs(4)[:2], towards, adam(module))
    assert {name for values in moments.values() for name in values} == {"step", "exp_avg", "exp_avg_sq"}
    learn(module, pairs(4)[2:], towards, adam(module), moments=moments)
    assert same(module, whole)
    assert not same(trained(4, is_fresh=True), whole)


def test_running_statistics_stay_unless_it_trains_in_training_mode() -> None:
    assert int(trained(3).norm.num_batches_tracked) == 3
    frozen = trained(3, is_training=False)
    assert torch.equal(frozen.norm.running_mean, Tiny().norm.running_mean)  # type: ignore[arg-type]
    assert not torch.equal(frozen.head.weight, Tiny().head.weight)
