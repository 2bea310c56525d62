"""Weights: taken, set, fingerprinted, and read from pretrained files made here."""

import hashlib
import os
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from fedsir.errors import DataError
from fedsir.models import weights as model_weights
from fedsir.models.build import build_model
from fedsir.models.config import ModelConfig
from fedsir.models.weights import (
    OFFICIAL_FILE,
    OTHER_FILE,
    load_pretrained,
    load_weights,
    weights_of,
    weights_sha256,
)
from fedsir.randomness import KeyedRandom


def build(name: str, n_classes: int = 10, in_channels: int = 3, seed: int = 0) -> nn.Module:
    return build_model(ModelConfig(name=name), n_classes=n_classes, in_channels=in_channels, random=KeyedRandom(seed))


@pytest.fixture(scope="module")
def pretrained() -> dict[str, Tensor]:
    """What a file of ImageNet weights holds: 1000 classes, statistics other than 0 and 1."""
    tensors = weights_of(build("resnet18", n_classes=1000, seed=99))
    generator = torch.Generator().manual_seed(1)
    return {
        name: torch.rand(tensor.shape, generator=generator) if "running" in name else tensor
        for name, tensor in tensors.items()
    }


@pytest.fixture
def small_file(tmp_path: Path) -> tuple[Path, dict[str, Tensor]]:
    tensors = weights_of(build("small_cnn", n_classes=3, seed=5))
    path = tmp_path / "start.safetensors"
    safetensors.torch.save_file(tensors, path)
    return path, tensors


def write_official(folder: Path, tensors: object, monkeypatch: pytest.MonkeyPatch) -> str:
    torch.save(tensors, folder / OFFICIAL_FILE)
    sha256 = hashlib.sha256((folder / OFFICIAL_FILE).read_bytes()).hexdigest()
    monkeypatch.setattr(model_weights, "OFFICIAL_SHA256", sha256)
    return sha256


# ---------------------------------------------------------------- weights in memory


def test_weights_are_copies_in_the_models_order() -> None:
    model = build("small_cnn")
    taken = weights_of(model)
    assert list(taken) == list(model.state_dict())
    for tensor in taken.values():
        assert not tensor.requires_grad
        tensor.zero_()
    assert model.head.weight.abs().sum() > 0


def test_weights_go_there_and_back() -> None:
    source, target = build("small_cnn", seed=1), build("small_cnn", seed=2)
    source(torch.ones(4, 3, 8, 8))  # moves the statistics of batch normalisation
    load_weights(target, weights_of(source))
    assert weights_sha256(weights_of(target)) == weights_sha256(weights_of(source))
    assert target.state_dict()["body.1.num_batches_tracked"] == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop("head.bias"), "lack 'head.bias'"),
        (lambda w: w.update(extra=torch.ones(1)), "hold 'extra'"),
        (lambda w: w.update({"head.bias": torch.ones(3)}), r"'head.bias' are \(3,\).*\(10,\)"),
        (lambda w: w.update({"head.bias": torch.ones(10).half()}), "'head.bias' are .* torch.float16"),
    ],
)
def test_weights_that_do_not_fit_change_nothing(change, message: str) -> None:
    model = build("small_cnn")
    before = weights_sha256(weights_of(model))
    weights = weights_of(build("small_cnn", seed=1))
    change(weights)
    with pytest.raises(DataError, match=message):
        load_weights(model, weights)
    assert weights_sha256(weights_of(model)) == before


def test_fingerprint_by_hand() -> None:
    weights = {"b": torch.tensor(1, dtype=torch.int64), "a": torch.tensor([[1.0, -2.0]])}
    content = b'["a", "float32", [1, 2]]\n' + bytes.fromhex("0000803f000000c0")
    content += b'["b", "int64", []]\n' + bytes.fromhex("0100000000000000")
    assert weights_sha256(weights) == hashlib.sha256(content).hexdigest()


def test_fingerprint_sees_names_types_shapes_and_values_but_not_order_or_layout() -> None:
    base = {"a": torch.arange(6.0).view(2, 3), "b": torch.zeros(2)}
    same = {"b": torch.zeros(2), "a": torch.arange(6.0).view(2, 3).T.contiguous().T}
    assert weights_sha256(same) == weights_sha256(base)
    others = [
        {"a": base["a"], "c": base["b"]},
        {"a": base["a"].view(3, 2), "b": base["b"]},
        {"a": base["a"], "b": torch.zeros(2, dtype=torch.int32)},
        {"a": base["a"], "b": torch.tensor([0.0, 1e-30])},
        {"a": base["a"]},
        {"a": base["a"], "b": torch.zeros(0)},
        {"a": base["a"], "b": base["b"].bfloat16()},
    ]
    assert len({weights_sha256(w) for w in [base, *others]}) == 1 + len(others)


# ---------------------------------------------------------------- pretrained files


def assert_backbone(model: nn.Module, expected: dict[str, Tensor]) -> None:
    for name, tensor in model.state_dict().items():
        if not name.startswith("fc.") and not name.endswith("num_batches_tracked"):
            assert torch.equal(tensor, expected[name]), name


def test_none_changes_nothing(tmp_path: Path) -> None:
    model = build("small_cnn")
    before = weights_sha256(weights_of(model))
    assert load_pretrained(model, "none", tmp_path)["kind"] == "random"
    assert weights_sha256(weights_of(model)) == before


def test_torchvisions_file(tmp_path: Path, pretrained, monkeypatch: pytest.MonkeyPatch) -> None:
    sha256 = write_official(tmp_path, pretrained, monkeypatch)
    safetensors.torch.save_file({"not": torch.ones(1)}, tmp_path / OTHER_FILE)  # comes second: not read
    model = build("resnet18")
    head = weights_of(model.head)
    provenance = load_pretrained(model, "imagenet", tmp_path)
    assert provenance == {"file": OFFICIAL_FILE, "sha256": sha256, "kind": "torchvision", "note": None}
    assert_backbone(model, pretrained)
    assert weights_sha256(weights_of(model.head)) == weights_sha256(head)


def test_a_half_precision_file_without_counters(tmp_path: Path, pretrained) -> None:
    halves = {
        name: tensor.half() if name.endswith("weight") else tensor
        for name, tensor in pretrained.items()
        if not name.endswith("num_batches_tracked")
    }
    assert len(halves) == 102
    safetensors.torch.save_file(halves, tmp_path / OTHER_FILE)
    model = build("resnet18")
    provenance = load_pretrained(model, "imagenet", tmp_path)
    assert provenance["kind"] == "imagenet, not the official file"
    assert provenance["sha256"] == hashlib.sha256((tmp_path / OTHER_FILE).read_bytes()).hexdigest()
    assert OFFICIAL_FILE in str(provenance["note"])
    assert {tensor.dtype for tensor in model.parameters()} == {torch.float32}
    assert_backbone(model, {name: tensor.float() for name, tensor in halves.items()})


def test_grey_images_get_the_sum_over_colour(tmp_path: Path, pretrained, monkeypatch) -> None:
    write_official(tmp_path, pretrained, monkeypatch)
    model = build("resnet18", in_channels=1)
    load_pretrained(model, "imagenet", tmp_path)
    summed = pretrained["conv1.weight"].sum(1, keepdim=True)
    assert torch.allclose(model.state_dict()["conv1.weight"], summed, rtol=0, atol=1e-6)


def test_a_file_with_another_checksum_is_refused_unread(tmp_path: Path, pretrained, monkeypatch) -> None:
    torch.save(pretrained, tmp_path / OFFICIAL_FILE)
    monkeypatch.setattr(model_weights, "_parse", lambda *_: pytest.fail("the file was read"))
    with pytest.raises(DataError, match=r"damaged or not torchvision's \(sha256 .*not f37072fd"):
        load_pretrained(build("resnet18"), "imagenet", tmp_path)


def test_no_file_says_what_to_put_where(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        load_pretrained(build("resnet18"), "imagenet", tmp_path)
    for part in (str(tmp_path), "resnet18-f37072fd.pth", OTHER_FILE, "--download", "--set model.weights=none"):
        assert part in str(caught.value)


def test_download_asks_for_the_published_file(tmp_path: Path, pretrained, monkeypatch) -> None:
    import pooch

    asked = {}

    def retrieve(url: str, known_hash: str, fname: str, path: Path) -> str:
        asked.update(url=url, known_hash=known_hash)
        torch.save(pretrained, path / fname)
        monkeypatch.setattr(model_weights, "OFFICIAL_SHA256", hashlib.sha256((path / fname).read_bytes()).hexdigest())
        return str(path / fname)

    monkeypatch.setattr(pooch, "retrieve", retrieve)
    model = build("resnet18")
    provenance = load_pretrained(model, "imagenet", tmp_path, download=True)
    assert asked["url"] == "https://download.pytorch.org/models/resnet18-f37072fd.pth"
    assert asked["known_hash"].startswith("sha256:f37072fd")
    assert provenance["kind"] == "torchvision"
    assert_backbone(model, pretrained)


def test_a_failed_download_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pooch

    def retrieve(*_: object, **__: object) -> str:
        raise ConnectionError("no network")

    monkeypatch.setattr(pooch, "retrieve", retrieve)
    with pytest.raises(DataError, match=r"could not download https://.*no network"):
        load_pretrained(build("resnet18"), "imagenet", tmp_path, download=True)


def test_own_file_for_another_number_of_classes(tmp_path: Path, small_file) -> None:
    path, tensors = small_file
    model = build("small_cnn", n_classes=10)
    head = weights_sha256(weights_of(model.head))
    provenance = load_pretrained(model, str(path), tmp_path / "unused")
    assert (provenance["file"], provenance["kind"]) == ("start.safetensors", "own file")
    assert torch.equal(model.state_dict()["body.0.weight"], tensors["body.0.weight"])
    assert weights_sha256(weights_of(model.head)) == head


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop("body.0.weight"), "lacks 'body.0.weight'"),
        (
            lambda w: w.update({"body.0.weight": torch.ones(32, 1, 3, 3)}),
            r"'body.0.weight' is \(32, 1, 3, 3\)",
        ),
        (lambda w: w.update({"body.1.bias": torch.ones(32, dtype=torch.int64)}), "'body.1.bias' .*int64"),
        (lambda w: w.update({"body.1.bias": torch.full((32,), torch.nan)}), "'body.1.bias' .*not finite"),
        (lambda w: w.update({"tail.weight": torch.ones(1)}), "holds 'tail.weight'"),
    ],
)
def test_a_file_that_does_not_fit_names_the_key(change, message: str, tmp_path: Path, small_file) -> None:
    path, tensors = small_file
    change(tensors)
    safetensors.torch.save_file(tensors, path)
    model = build("small_cnn")
    before = weights_sha256(weights_of(model))
    with pytest.raises(DataError, match=message):
        load_pretrained(model, str(path), tmp_path)
    assert weights_sha256(weights_of(model)) == before


class Intruder:
    def __reduce__(self):
        return (os.getcwd, ())


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("w.safetensors", b"rubbish", "cannot be read as .safetensors"),
        ("w.pth", b"rubbish", "cannot be read as .pth"),
        ("w.pth", b"", "cannot be read as .pth"),
        ("w.pth", {"state_dict": {"a": torch.ones(1)}}, "not a plain state dict"),
        ("w.pth", {"a": Intruder()}, "cannot be read as .pth"),
    ],
)
def test_a_file_that_cannot_be_read(name: str, content: object, message: str, tmp_path: Path) -> None:
    if isinstance(content, bytes):
        (tmp_path / name).write_bytes(content)
    else:
        torch.save(content, tmp_path / name)
    with pytest.raises(DataError, match=message) as caught:
        load_pretrained(build("small_cnn"), str(tmp_path / name), tmp_path)
    assert "\n" not in str(caught.value)


def test_a_path_to_nothing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no weights at .*gone\.pth"):
        load_pretrained(build("small_cnn"), str(tmp_path / "gone.pth"), tmp_path)


@pytest.mark.real_data
def test_real_imagenet_weights_give_plausible_features() -> None:
    folder = os.environ.get("FEDSIR_DATA")
    if not folder:
        pytest.skip("FEDSIR_DATA is not set")
    if not (Path(folder) / OTHER_FILE).is_file():
        pytest.skip(f"no {OTHER_FILE} in FEDSIR_DATA")
    model = build("resnet18")
    provenance = load_pretrained(model, str(Path(folder) / OTHER_FILE), Path(folder))
    assert len(str(provenance["sha256"])) == 64
    model.eval()
    # A trained stem answers edges: stripes must wake more than a flat image does, and not explode.
    stripes = torch.zeros(1, 3, 64, 64)
    stripes[..., ::8], stripes[..., 1::8] = 2.0, 2.0
    with torch.no_grad():
        flat, edges = model.features(torch.zeros(1, 3, 64, 64)), model.features(stripes)
    assert (flat - edges).norm() / flat.norm() > 0.2
    assert 0.1 < edges.mean() < 10
