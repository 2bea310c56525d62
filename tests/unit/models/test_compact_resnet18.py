"""The faster twin against the stock ResNet-18: same logits, same gradients, same file."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from fedsir.models.build import build_model, exported_weights, training_model
from fedsir.models.compact_resnet18 import CompactResNet18, MapConv, full_weights
from fedsir.models.config import ModelConfig
from fedsir.models.resnet18 import ResNet18
from fedsir.models.weights import weights_of
from fedsir.randomness import KeyedRandom

SIZES = [(8, 8), (12, 12), (28, 28), (31, 31), (32, 32), (32, 16)]


def pair(size: tuple[int, int], channels: int = 3) -> tuple[ResNet18, CompactResNet18]:
    config = ModelConfig(name="resnet18")
    stock = build_model(config, n_classes=10, in_channels=channels, random=KeyedRandom(5), image_size=size)
    assert isinstance(stock, ResNet18)
    compact = training_model(stock, "resnet18", size)
    assert isinstance(compact, CompactResNet18)
    return stock, compact


def images(size: tuple[int, int], channels: int = 3, n: int = 6) -> torch.Tensor:
    return torch.randn(n, channels, *size, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("size", "channels"), [*((size, 3) for size in SIZES), ((32, 32), 1)])
def test_same_logits(size: tuple[int, int], channels: int) -> None:
    stock, compact = (model.double() for model in pair(size, channels))  # float64: rounding cannot hide a mistake
    x = images(size, channels).double()
    for mode in (False, True):  # evaluation uses running statistics, training those of the batch
        stock.train(mode)
        compact.train(mode)
        with torch.no_grad():
            expected, got = stock(x), compact(x)
        torch.testing.assert_close(got, expected, rtol=1e-8, atol=1e-9)
    # Both passes in training mode moved the running statistics alike.
    moved, expected_moved = compact.state_dict(), stock.state_dict()
    torch.testing.assert_close(
        moved["layer4.1.bn2.running_var"], expected_moved["layer4.1.bn2.running_var"], rtol=1e-8, atol=1e-9
    )


def test_rounds_no_worse_than_ten_times_stock() -> None:
    stock, compact = pair((32, 32))
    x = images((32, 32), n=64)
    exact = ResNet18(10).double()
    exact.load_state_dict(stock.state_dict())
    with torch.no_grad():
        truth = exact.train()(x.double())
        error, stock_error = ((model.train()(x) - truth).abs().max() for model in (compact, stock))
    assert error < 10 * stock_error


def test_same_gradients_and_dead_taps_have_none() -> None:
    size = (32, 32)
    stock, compact = pair(size)
    stock, compact = stock.double(), compact.double()
    x, labels = images(size, n=8).double(), torch.arange(8)
    F.cross_entropy(stock(x), labels).backward()
    F.cross_entropy(compact(x), labels).backward()
    gradients = {name: p.grad for name, p in compact.named_parameters()}
    as_full = full_weights(gradients, compact, {n: torch.zeros_like(p) for n, p in stock.named_parameters()})
    assert as_full.keys() == dict(stock.named_parameters()).keys()
    for name, parameter in stock.named_parameters():
        # Zeros stand where this model has no tap: the stock model's gradient there must be exactly zero too.
        assert parameter.grad is not None
        torch.testing.assert_close(as_full[name], parameter.grad, rtol=1e-6, atol=1e-9)
        assert torch.equal(as_full[name] == 0, parameter.grad == 0) or not name.startswith("layer4")


def test_export_is_the_stock_file() -> None:
    stock, compact = pair((32, 32))
    exported = exported_weights(weights_of(compact), compact, stock)
    expected = stock.state_dict()
    assert exported.keys() == expected.keys()
    assert all(torch.equal(exported[name], tensor) for name, tensor in expected.items())


def test_dead_taps_are_carried_over_untouched() -> None:
    stock, compact = pair((32, 32))
    trained = {name: tensor + 1 for name, tensor in weights_of(compact).items()}
    exported = full_weights(trained, compact, stock.state_dict())["layer4.1.conv2.weight"]
    before = stock.state_dict()["layer4.1.conv2.weight"]
    assert torch.equal(exported[:, :, 1, 1], before[:, :, 1, 1] + 1)
    dead = torch.ones(3, 3, dtype=torch.bool)
    dead[1, 1] = False
    assert torch.equal(exported[:, :, dead], before[:, :, dead])


def test_how_much_is_left() -> None:
    stock, compact = pair((32, 32))
    assert sum(p.numel() for p in stock.parameters()) == 11_181_642
    assert sum(p.numel() for p in compact.parameters()) == 4_234_826
    convolutions = [m for m in compact.modules() if isinstance(m, MapConv)]
    assert len(convolutions) == 19


def test_large_images_and_the_stock_name_stay_stock() -> None:
    stock, _ = pair((32, 32))
    assert training_model(stock, "resnet18", (33, 33)) is stock
    assert training_model(stock, "resnet18_stock", (32, 32)) is stock
