"""The pieces of client work on a fake device: the same values as on the CPU, and few words to the host."""

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from fake_device import FakeDevice
from fedsir.data.augment import _scale_and_shift, augment, normalise
from fedsir.data.client import ClientData
from fedsir.data.source import Source
from fedsir.engines.wire import decode, encode
from fedsir.evaluate.accuracy import predict
from fedsir.methods import base, local_training
from fedsir.methods.base import Client, Weights
from fedsir.models.build import build_model, training_model
from fedsir.models.config import ModelConfig
from fedsir.models.weights import load_weights, weights_of, weights_sha256
from fedsir.randomness import KeyedRandom
from fedsir.stages import identify, relabel, train
from fedsir.stages.spectrum import class_features

ACCELERATORS = ("cuda", "mps")
both = pytest.mark.parametrize("kind", ACCELERATORS)


def small_cnn() -> nn.Module:
    return build_model(
        ModelConfig(name="small_cnn"), n_classes=10, in_channels=1, random=KeyedRandom(0), image_size=(8, 8)
    )


MakeClient = Callable[..., Client]


@pytest.fixture
def make_client(digits: Source) -> MakeClient:
    """Return a function that makes a client with the first digits, on a device."""

    def make(device: str, n: int = 24) -> Client:
        data = ClientData(
            images=torch.from_numpy(digits.train_images[:n]),
            labels=torch.from_numpy(digits.train_labels[:n].copy()),
            n_classes=10,
            mean=digits.mean,
            std=digits.std,
            flip=True,
            crop_padding=1,
        )
        random = KeyedRandom(3, ("client", "x"))
        return Client(id="x", data=data, state={}, random=random, new_module=small_cnn, device=device)

    return make


def train_once(client: Client, *, batch_size: int = 8, epochs: int = 1) -> tuple[float, Weights]:
    module = client.module(weights_of(small_cnn()))
    loss = local_training.train_locally(
        client,
        module,
        local_training.cross_entropy,
        epochs=epochs,
        batch_size=batch_size,
        lr=0.01,
        weight_decay=1e-3,
    )
    return loss, weights_of(module)


def same(one: Weights, other: Weights) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name].cpu()) for name in one)


# ---------------------------------------------------------------- models


@both
@pytest.mark.parametrize(
    ("name", "channels", "size", "twin"),
    [
        ("small_cnn", 1, 8, "SmallCNN"),
        ("resnet18", 3, 32, "CompactResNet18"),
        ("resnet18", 1, 16, "CompactResNet18"),
        ("resnet18_stock", 3, 32, "ResNet18"),
    ],
)
def test_every_model_trains_there_as_here(kind: str, name: str, channels: int, size: int, twin: str) -> None:
    image_size = (size, size)
    stock = build_model(
        ModelConfig(name=name), n_classes=4, in_channels=channels, random=KeyedRandom(1), image_size=image_size
    )
    first = weights_of(training_model(stock, name, image_size))
    images = torch.randn(6, channels, size, size, generator=torch.Generator().manual_seed(2))
    labels = torch.tensor([0, 1, 2, 3, 0, 1])

    def trained(device: str) -> Weights:
        module = training_model(stock, name, image_size)
        assert type(module).__name__ == twin
        load_weights(module, first)
        module.to(device)
        there, wanted = images.to(device), labels.to(device)
        optimiser = torch.optim.Adam(module.parameters(), lr=0.01, fused=True)
        for _ in range(2):
            optimiser.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(module.train()(there), wanted).backward()
            optimiser.step()
        with torch.inference_mode():
            features = module.eval().features(there)
        assert {tensor.device.type for tensor in module.state_dict().values()} == {device}
        return weights_of(module) | {"features": features}

    expected = trained("cpu")
    with FakeDevice(kind):
        got = trained(kind)
        assert same(expected, got)
    assert not same({name: expected[name] for name in first}, first)


# ---------------------------------------------------------------- the training loop


@both
def test_local_training_is_that_of_the_cpu(kind: str, make_client: MakeClient) -> None:
    loss, weights = train_once(make_client("cpu"), epochs=2)
    with FakeDevice(kind):
        loss_there, weights_there = train_once(make_client(kind), epochs=2)
        assert {tensor.device.type for tensor in weights_there.values()} == {kind}
        assert same(weights, weights_there)
    assert loss == loss_there


def transfers(make_client: MakeClient, **settings: int) -> Counter[str]:
    _scale_and_shift.cache_clear()
    with FakeDevice("cuda") as fake:
        client = make_client("cuda")
        module = client.module(weights_of(small_cnn()))
        fake.events.clear()
        local_training.train_locally(
            client,
            module,
            local_training.cross_entropy,
            lr=0.01,
            weight_decay=0.0,
            **settings,  # type: ignore[arg-type]
        )
    return Counter(event.kind for event in fake.events)


def test_no_step_waits_for_the_host(make_client: MakeClient) -> None:
    one_step = transfers(make_client, batch_size=24, epochs=1)
    # Images and the constants of normalisation once; order, crops and labels of the epoch; the losses at the end.
    assert one_step == {"upload": 5, "download": 1}
    assert transfers(make_client, batch_size=4, epochs=1) == one_step
    assert transfers(make_client, batch_size=4, epochs=3) == {"upload": 5 + 2 * 3, "download": 1}


def test_a_loss_read_in_every_step_would_be_noticed(make_client: MakeClient) -> None:
    def talkative(module: nn.Module, batch: local_training.Batch) -> Tensor:
        loss = local_training.cross_entropy(module, batch)
        loss.item()
        return loss

    with FakeDevice("cuda") as fake:
        client = make_client("cuda")
        module = client.module(weights_of(small_cnn()))
        local_training.train_locally(client, module, talkative, epochs=1, batch_size=4, lr=0.01, weight_decay=0.0)
    assert fake.count("wait") == 6


@both
def test_images_too_many_for_the_device_come_batch_by_batch(
    kind: str, make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = train_once(make_client("cpu"))
    monkeypatch.setattr(base, "RESIDENT_BYTES", 24 * 64 - 1)
    with FakeDevice(kind) as fake:
        client = make_client(kind)
        assert client.images is client.data.images
        loss, weights = train_once(client)
        assert same(expected[1], weights)
        images = [e for e in fake.events if e.kind == "upload" and e.where.startswith("fedsir.methods.local_training")]
        features = torch.cat([f for f, _ in local_training.stream_features(client, client.module(weights))])
        assert features.device.type == kind
    assert loss == expected[0]
    assert len(images) == 3 + 3  # order, crops, labels; and three steps
    monkeypatch.setattr(base, "RESIDENT_BYTES", 24 * 64)
    with FakeDevice(kind):
        assert make_client(kind).images.device.type == kind


# ---------------------------------------------------------------- data, spectra, references, prediction


@both
@pytest.mark.parametrize(("crop_padding", "flip"), [(0, False), (2, False), (0, True), (2, True)])
def test_augmentation(kind: str, crop_padding: int, flip: bool) -> None:
    images = torch.randint(256, (9, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))

    def made(device: str) -> Tensor:
        generator = torch.Generator().manual_seed(1)
        crops = augment(images.to(device), crop_padding=crop_padding, flip=flip, generator=generator)
        return normalise(crops, (0.4, 0.5, 0.6), (0.2, 0.3, 0.4))

    expected = made("cpu")
    with FakeDevice(kind):
        got = made(kind)
        assert got.device.type == kind
        assert torch.equal(got.cpu(), expected)


@both
def test_spectra_come_from_the_cpu_in_float64(kind: str, make_client: MakeClient) -> None:
    def spectra(device: str) -> tuple[Tensor, Tensor, relabel.ClassSpectra]:
        client = make_client(device, n=300)
        collected = local_training.class_features_of(client, client.module(weights_of(small_cnn())), is_augmented=True)
        grams = torch.stack([collected.gram(label) for label in range(collected.n_classes)])
        assert (grams.dtype, grams.device.type) == (torch.float64, "cpu")
        directions = identify.class_directions(collected, 2)
        assert identify.off_diagonal_stats(identify.class_similarity(directions)).mean > 0
        return grams, directions, relabel.extract_spectra(collected, 3, "after_direction")

    expected = spectra("cpu")
    with FakeDevice(kind) as fake:
        got = spectra(kind)
        features = torch.randn(20, 5, generator=torch.Generator().manual_seed(0))
        labels = torch.arange(20) % 4
        there = class_features(features.to(kind), labels.to(kind), 4)
        here = class_features(features, labels, 4)
        assert all(torch.equal(there.gram(label), here.gram(label)) for label in range(4))
    assert torch.equal(got[0], expected[0])
    assert torch.equal(got[1], expected[1])
    assert same(vars(expected[2]), vars(got[2]))
    assert fake.count("wait") == 0
    assert fake.count("download") == 1 + 2  # 300 rows of features are one piece; and the two of `class_features`


@both
def test_relabelling_and_what_it_leaves_with_the_client(kind: str, make_client: MakeClient) -> None:
    def relabelled(device: str) -> relabel.Relabelling:
        client = make_client(device, n=300)
        module = client.module(weights_of(small_cnn()))
        collected = local_training.class_features_of(client, module)
        spectra = relabel.extract_spectra(collected, 3, "after_direction")
        references = relabel.aggregate_references({"a": spectra}, weight="count", min_samples=1, min_strength=0.0)
        assert {tensor.device.type for tensor in vars(references).values()} == {"cpu"}  # they came by the wire
        found = local_training.relabel_client(client, module, references, "agreement")
        assert (found.labels != client.data.labels).any()
        return found

    expected = relabelled("cpu")
    with FakeDevice(kind) as fake:
        got = relabelled(kind)
    assert fake.count("wait") == 0
    assert [event.kind for event in fake.events][-2:] == ["download", "download"]  # labels and doubts, once
    assert same(vars(expected), vars(got))
    assert type(got.labels) is Tensor


@both
def test_the_losses_of_stage_three(kind: str) -> None:
    generator = torch.Generator().manual_seed(0)
    logits, teacher = torch.randn(2, 6, 4, generator=generator)
    labels = torch.tensor([0, 1, 2, 3, 0, 1])
    adjustment = train.logit_adjustment(train.class_prior(labels, 4))

    def losses(device: str) -> Tensor:
        z, t, y, m = (tensor.to(device) for tensor in (logits, teacher, labels, adjustment))
        distil = train.la_kd_loss(z, t, y, m, weight=0.3, temperature=0.8, is_distilled=y > 1)
        return torch.stack([train.la_loss(z, y, m), distil])

    expected = losses("cpu")
    with FakeDevice(kind) as fake:
        got = losses(kind)
        assert [event.kind for event in fake.events] == ["upload"] * 4
        assert torch.equal(got.cpu(), expected)


@both
def test_prediction(kind: str, digits: Source) -> None:
    images = torch.from_numpy(digits.test_images[:60])

    def classes(device: str) -> list[int]:
        found = predict(
            small_cnn().to(device),
            images,
            lambda batch: normalise(batch, digits.mean, digits.std),
            batch_size=25,
            device=device,
        )
        return [int(c) for c in found]

    expected = classes("cpu")
    _scale_and_shift.cache_clear()
    with FakeDevice(kind) as fake:
        assert classes(kind) == expected
    n_tensors = len(small_cnn().state_dict())
    assert Counter(event.kind for event in fake.events) == {"upload": n_tensors + 3 + 1, "download": 1}
    assert len(set(expected)) > 1


@both
def test_what_goes_on_the_wire_comes_from_any_device(kind: str) -> None:
    weights = weights_of(small_cnn())
    payload = {"model": weights, "n_samples": 3, "loss": 0.5}
    with FakeDevice(kind):
        there = {name: tensor.to(kind) for name, tensor in weights.items()}
        assert encode({**payload, "model": there}) == encode(payload)
        assert weights_sha256(there) == weights_sha256(weights)
        received = decode(encode({"model": there}))["model"]
        assert {type(tensor) for tensor in received.values()} == {Tensor}
        module = small_cnn().to(kind)
        load_weights(module, received)  # from the CPU into a model that is already there
        assert same(weights, weights_of(module))
