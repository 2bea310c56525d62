"""The networks: shapes, names and numbers of parameters, features and head."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedsir.errors import ConfigError
from fedsir.models.build import build_model
from fedsir.models.config import ModelConfig
from fedsir.models.resnet18 import ResNet18, grey_stem
from fedsir.models.small_cnn import SmallCNN
from fedsir.randomness import KeyedRandom


def build(name: str, n_classes: int = 10, in_channels: int = 3) -> nn.Module:
    return build_model(ModelConfig(name=name), n_classes=n_classes, in_channels=in_channels, random=KeyedRandom(0))


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def n_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def published_resnet18() -> dict[str, tuple[int, ...]]:
    """Names and shapes of torchvision's ResNet-18 with 1000 classes, in its order."""
    shapes: dict[str, tuple[int, ...]] = {}

    def batch_norm(name: str, channels: int) -> None:
        for part in ("weight", "bias", "running_mean", "running_var"):
            shapes[f"{name}.{part}"] = (channels,)
        shapes[f"{name}.num_batches_tracked"] = ()

    shapes["conv1.weight"] = (64, 3, 7, 7)
    batch_norm("bn1", 64)
    before = 64
    for layer, channels in (("layer1", 64), ("layer2", 128), ("layer3", 256), ("layer4", 512)):
        for block in (0, 1):
            shapes[f"{layer}.{block}.conv1.weight"] = (channels, before, 3, 3)
            batch_norm(f"{layer}.{block}.bn1", channels)
            shapes[f"{layer}.{block}.conv2.weight"] = (channels, channels, 3, 3)
            batch_norm(f"{layer}.{block}.bn2", channels)
            if before != channels:
                shapes[f"{layer}.{block}.downsample.0.weight"] = (channels, before, 1, 1)
                batch_norm(f"{layer}.{block}.downsample.1", channels)
            before = channels
    shapes["fc.weight"] = (1000, 512)
    shapes["fc.bias"] = (1000,)
    return shapes


def test_resnet18_has_the_published_names_and_shapes() -> None:
    model = build("resnet18", n_classes=1000)
    got = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    assert list(got.items()) == list(published_resnet18().items())
    assert len(got) == 122
    assert n_parameters(model) == 11_689_512


def test_resnet18_computes_what_the_paper_draws() -> None:
    # The network once more, written out with functions on the state dict (evaluation mode).
    model = build("resnet18")
    with torch.no_grad():
        for name, buffer in model.named_buffers():  # statistics other than 0 and 1, so that order shows
            if name.endswith("running_mean"):
                buffer.copy_(0.1 * noise(*buffer.shape))
            elif name.endswith("running_var"):
                buffer.copy_(1 + noise(*buffer.shape, seed=1).abs())
    weights = model.state_dict()

    def norm(x: Tensor, name: str) -> Tensor:
        mean, variance, scale, shift = (
            weights[f"{name}.{part}"].view(1, -1, 1, 1) for part in ("running_mean", "running_var", "weight", "bias")
        )
        return (x - mean) / (variance + 1e-5).sqrt() * scale + shift

    images = noise(2, 3, 40, 40)
    x = F.conv2d(images, weights["conv1.weight"], stride=2, padding=3)
    x = F.max_pool2d(F.relu(norm(x, "bn1")), 3, stride=2, padding=1)
    for layer in (1, 2, 3, 4):
        for block in (0, 1):
            at = f"layer{layer}.{block}"
            stride = 2 if layer > 1 and block == 0 else 1
            shortcut = x
            if stride == 2:
                shortcut = F.conv2d(x, weights[f"{at}.downsample.0.weight"], stride=2)
                shortcut = norm(shortcut, f"{at}.downsample.1")
            y = F.conv2d(x, weights[f"{at}.conv1.weight"], stride=stride, padding=1)
            y = F.conv2d(F.relu(norm(y, f"{at}.bn1")), weights[f"{at}.conv2.weight"], padding=1)
            x = F.relu(norm(y, f"{at}.bn2") + shortcut)
    features = x.mean(dim=(2, 3))

    assert isinstance(model, ResNet18)
    model.eval()
    with torch.no_grad():
        assert torch.allclose(model.features(images), features, rtol=1e-4, atol=1e-5)


def test_resnet18_head_is_fc() -> None:
    model = build("resnet18", n_classes=7)
    assert isinstance(model, ResNet18)
    assert model.head is model.fc
    assert (model.head.in_features, model.head.out_features) == (512, 7)


@pytest.mark.parametrize("is_training", [False, True])
@pytest.mark.parametrize("size", [8, 12, 32, 33, 64])
@pytest.mark.parametrize("name", ["resnet18", "small_cnn", "strided_cnn"])
def test_image_sizes(name: str, size: int, is_training: bool) -> None:
    model = build(name, in_channels=1)
    model.train(is_training)
    features = model.features(noise(2, 1, size, size))
    assert features.shape == (2, model.head.in_features)
    assert bool((features >= 0).all())
    assert bool(features.isfinite().all())
    assert bool((features > 0).any())


@pytest.mark.parametrize("name", ["resnet18", "small_cnn", "strided_cnn"])
def test_forward_is_head_of_features_and_everything_learns(name: str) -> None:
    model = build(name)
    images = noise(4, 3, 32, 32)
    model.eval()
    assert torch.equal(model(images), model.head(model.features(images)))
    model.train()
    F.cross_entropy(model(images), torch.tensor([0, 1, 2, 3])).backward()
    without = [n for n, p in model.named_parameters() if p.grad is None or not bool(p.grad.abs().sum() > 0)]
    assert without == []


def test_resnet18_grey_stem_equals_three_equal_channels() -> None:
    colour, grey = build("resnet18"), build("resnet18", in_channels=1)
    weights = colour.state_dict()
    weights["conv1.weight"] = grey_stem(weights["conv1.weight"])
    grey.load_state_dict(weights)
    images = noise(2, 1, 32, 32)
    colour.eval(), grey.eval()
    with torch.no_grad():
        assert torch.allclose(grey(images), colour(images.expand(2, 3, 32, 32)), rtol=1e-4, atol=1e-5)


def test_resnet18_refuses_other_channels() -> None:
    with pytest.raises(ConfigError, match="1 or 3 channels, not 4"):
        ResNet18(n_classes=10, in_channels=4)


def test_small_cnn_is_small() -> None:
    assert 30_000 < n_parameters(SmallCNN(n_classes=10, in_channels=1)) < 70_000
    assert 64 <= SmallCNN(n_classes=10, in_channels=1).head.in_features <= 128


def test_strides_make_maps_smaller_and_weights_the_same() -> None:
    small, strided = build("small_cnn"), build("strided_cnn")
    assert {k: v.shape for k, v in small.state_dict().items()} == {k: v.shape for k, v in strided.state_dict().items()}
    assert small.body[3](small.body[0](noise(1, 3, 32, 32))).shape == (1, 64, 32, 32)
    assert strided.body[3](strided.body[0](noise(1, 3, 32, 32))).shape == (1, 64, 8, 8)


def test_small_cnn_learns_the_digits_of_one_client() -> None:
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = torch.as_tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 8 - 1
    labels = torch.as_tensor(digits.target)
    # The digits come writer by writer: unshuffled, the 200 would be of a few hands and the rest of others.
    shuffle = torch.Generator().manual_seed(0)
    order = torch.randperm(len(labels), generator=shuffle)
    images, labels = images[order], labels[order]
    model = build("small_cnn", in_channels=1)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(8):
        for batch in torch.randperm(200, generator=shuffle).split(32):
            optimiser.zero_grad()
            F.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimiser.step()
    model.eval()
    with torch.no_grad():
        accuracy = (model(images[200:]).argmax(1) == labels[200:]).float().mean().item()
    assert accuracy > 0.9  # 0.916 to 0.947 over eight seeds
