"""The fake device behaves as an accelerator does, so that what passes on it has a chance on a real one."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fake_device import DeviceTensor, FakeDevice

X = torch.arange(12, dtype=torch.float32).view(3, 4)
LABELS = torch.tensor([0, 3, 1])


@pytest.fixture(params=["cuda", "mps"])
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


# ---------------------------------------------------------------- where tensors are


def test_a_tensor_says_where_it_is_and_comes_back_unchanged(kind: str) -> None:
    with FakeDevice(kind) as fake:
        there = X.to(kind)
        assert (there.device, str(there.device)) == (torch.device(kind, 0), f"{kind}:0")
        assert isinstance(there, DeviceTensor)
        assert (there + 1).device.type == kind
        assert there.to(kind) is there
        assert there.to(there.device) is there
        for back in (there.cpu(), there.to("cpu"), there.to(device=torch.device("cpu"))):
            assert type(back) is Tensor
            assert back.device.type == "cpu"
            assert torch.equal(back, X)
    assert [event.kind for event in fake.events] == ["upload", *["download"] * 3]


def test_factories_make_tensors_there_and_others_follow(kind: str) -> None:
    with FakeDevice(kind) as fake:
        made = [
            torch.zeros(2, device=kind),
            torch.full((2,), 3.0, device=f"{kind}:0"),
            torch.arange(2, device=torch.device(kind)),
            torch.tensor([1.0, 2.0], device=kind),
        ]
        made += [torch.ones_like(made[0]), made[0].new_empty(3), torch.zeros(1, device=made[0].device), made[0][:1]]
        assert {str(tensor.device) for tensor in made} == {f"{kind}:0"}
        assert torch.zeros(2).device.type == "cpu"
        assert torch.zeros_like(made[0], device="cpu").device.type == "cpu"
    assert fake.count("upload") == 1  # the numbers of torch.tensor; zeros are made there


def test_it_is_gone_after_the_block(kind: str) -> None:
    with FakeDevice(kind):
        torch.zeros(1, device=kind)
    with pytest.raises((RuntimeError, AssertionError)):
        torch.zeros(1, device=kind) + 1


def test_a_module_moves_as_a_whole(kind: str) -> None:
    module = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5))
    expected = module(X)
    with FakeDevice(kind):
        module.to(kind)
        assert {tensor.device.type for tensor in module.state_dict().values()} == {kind}
        assert all(isinstance(parameter, nn.Parameter) for parameter in module.parameters())
        assert torch.equal(module(X.to(kind)).cpu(), expected)
        module.to("cpu")
    assert {type(tensor) for tensor in module.state_dict().values()} == {Tensor}


# ---------------------------------------------------------------- what does not mix

MIXED: dict[str, Callable[[Tensor], Any]] = {
    "add": lambda x: x + torch.ones(3, 4),
    "add to the right": lambda x: torch.ones(3, 4) + x,
    "a CPU sum of device numbers": lambda x: torch.zeros(()).add_(x.sum()),
    "in place": lambda x: x.mul_(torch.ones(4)),
    "matrix product": lambda x: x @ torch.ones(4, 2),
    "a layer left on the CPU": lambda x: nn.Linear(4, 2)(x),
    "cat": lambda x: torch.cat([x, torch.ones(3, 4)]),
    "stack of single numbers": lambda x: torch.stack([x.sum(), torch.zeros(())]),
    "where": lambda x: torch.where(x > 1, x, torch.zeros(3, 4)),
    "labels left on the CPU": lambda x: F.cross_entropy(x, LABELS),
    "gather": lambda x: x.gather(1, LABELS[:, None]),
    "index_add_": lambda x: x.index_add_(0, LABELS % 3, x.clone()),
    "a CPU tensor indexed from the device": lambda x: torch.ones(20)[x.long()],
    "a CPU mask of values from the device": lambda x: torch.ones(3, 4).masked_fill(x > 1, 0.0),
    "values from the CPU at an index": lambda x: x.index_put_((x.new_zeros(3, dtype=torch.int64),), torch.ones(3, 4)),
    "out": lambda x: torch.mm(x.detach(), x.detach().T, out=torch.empty(3, 3)),
    "equality": lambda x: torch.equal(x, torch.ones(3, 4)),
}


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("with_gradient", [False, True])
def test_mixing_raises(name: str, with_gradient: bool) -> None:
    with FakeDevice("cuda"):
        there = X.to("cuda").requires_grad_(with_gradient)
        there = there * 1  # not a leaf, which could not be changed in place
        with pytest.raises(RuntimeError, match="cuda:0 and cpu"):
            MIXED[name](there)
        with pytest.raises(RuntimeError, match="cuda:0 and cpu"), torch.inference_mode():
            MIXED[name](X.to("cuda"))


def test_a_factory_without_a_device_is_caught_when_it_meets_the_data() -> None:
    def forgetful(images: Tensor) -> Tensor:
        return images - torch.tensor([0.5, 0.5, 0.5, 0.5])

    assert forgetful(X).shape == X.shape  # the CPU forgives it
    with FakeDevice("cuda"), pytest.raises(RuntimeError, match="same device"):
        forgetful(X.to("cuda"))


@pytest.mark.parametrize("hidden", [lambda x: x.numpy(), np.asarray, lambda x: x.detach().numpy()])
def test_numpy_raises(hidden: Callable[[Any], Any]) -> None:
    with FakeDevice("cuda"):
        with pytest.raises(TypeError, match=r"can't convert cuda:0 device type tensor to numpy"):
            hidden(X.to("cuda"))
        assert hidden(X.to("cuda").cpu()) is not None


def test_a_generator_of_the_cpu_does_not_draw_there() -> None:
    with FakeDevice("cuda"), pytest.raises(RuntimeError, match="generator"):
        torch.randint(5, (3,), generator=torch.Generator().manual_seed(0), device="cuda")


def test_what_torch_lets_mix() -> None:
    with FakeDevice("cuda") as fake:
        there = X.to("cuda")
        host = torch.zeros(3, 4)
        assert torch.equal((there * torch.tensor(2.0)).cpu(), X * 2)  # a CPU tensor without dimensions is a number
        assert torch.equal(there.masked_fill(there > 3, torch.tensor(-1.0)).cpu(), X.masked_fill(X > 3, -1))
        host.copy_(there)
        host[0] = there[1]
        assert host[0].tolist() == X[1].tolist()
        fake.events.clear()
        assert torch.equal(there[LABELS % 3].cpu(), X[LABELS % 3])
        assert [event.kind for event in fake.events] == ["upload", "download"]  # the index goes there first


# ---------------------------------------------------------------- what the host sees


@pytest.mark.parametrize(
    "look",
    [
        lambda x: x.sum().item(),
        lambda x: float(x.sum()),
        lambda x: bool((x > 1).any()),
        lambda x: f"{x.sum():.2f}",
        lambda x: x.nonzero(),
        lambda x: x[x > 3],
        lambda x: torch.bincount(x.long().flatten()),
        lambda x: torch.equal(x, x + 1),
    ],
)
def test_a_look_at_values_makes_the_host_wait(look: Callable[[Tensor], Any]) -> None:
    with FakeDevice("cuda") as fake:
        there = X.to("cuda")
        fake.events.clear()
        look(there)
        assert [event.kind for event in fake.events] == ["wait"]


def test_a_list_is_a_download_and_plain_work_is_nothing() -> None:
    with FakeDevice("cuda") as fake:
        there = X.to("cuda")
        fake.events.clear()
        len(there), there.shape, there.dtype
        (there.view(4, 3).T.contiguous() * 2 + 1).softmax(0).argmax(1)
        assert fake.events == []
        assert there.tolist() == X.tolist()
        assert [event.kind for event in fake.events] == ["download"]


def test_mps_has_no_float64() -> None:
    with FakeDevice("mps"):
        for attempt in (
            lambda: X.to("mps", torch.float64),
            lambda: X.double().to("mps"),
            lambda: X.to("mps").double(),
            lambda: torch.zeros(2, dtype=torch.float64, device="mps"),
            lambda: torch.tensor([1.0], dtype=torch.float64, device="mps"),
            lambda: X.to("mps").sum(dtype=torch.float64),
            lambda: X.to("mps").to("cpu", torch.float64),
            lambda: torch.zeros(3, 4, dtype=torch.float64).copy_(X.to("mps")),
        ):
            with pytest.raises(TypeError, match="float64"):
                attempt()
        assert X.to("mps").cpu().double().dtype == torch.float64
        assert X.double().to("mps", torch.float32).dtype == torch.float32
    with FakeDevice("cuda"):
        assert X.to("cuda").double().cpu().dtype == torch.float64


# ---------------------------------------------------------------- autograd and optimisers


class Cube(torch.autograd.Function):
    """x³ with an in-place product into a view and a constant made on the spot."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        out = torch.empty_like(x)
        for row, into in zip(x, out, strict=True):
            torch.mul(row, row, out=into)
            into.mul_(row)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad * x.new_full((1,), 3.0) * x.square()


def test_autograd_runs_there(kind: str) -> None:
    def gradients(device: str) -> list[Tensor]:
        x = X.clone().to(device).requires_grad_()
        weight = torch.linspace(-1, 1, 8).view(2, 4).to(device).requires_grad_()
        y = Cube.apply(F.linear(x, weight) * 0.1)
        y[:, 0].add_(1)  # in place, in a view
        F.cross_entropy(y, (LABELS % 2).to(device)).backward()
        assert x.grad is not None and weight.grad is not None
        assert {x.grad.device.type, weight.grad.device.type} == {device}
        return [x.grad.cpu(), weight.grad.cpu()]

    expected = gradients("cpu")
    with FakeDevice(kind):
        got = gradients(kind)
    assert all(torch.equal(one, other) for one, other in zip(expected, got, strict=True))
    assert expected[0].abs().sum() > 0


def test_fused_adam_steps_there_without_a_word_to_the_host(kind: str) -> None:
    def trained(device: str) -> dict[str, Tensor]:
        module = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 4))
        with torch.no_grad():
            for i, parameter in enumerate(module.parameters()):
                parameter.copy_(torch.linspace(-1, 1 + i, parameter.numel()).view(parameter.shape))
        module.to(device)
        x, labels = X.to(device), LABELS.to(device)
        for fake in fakes:
            fake.events.clear()
        optimiser = torch.optim.Adam(module.parameters(), lr=0.1, weight_decay=0.01, fused=True)
        for _ in range(3):
            optimiser.zero_grad(set_to_none=True)
            F.cross_entropy(module(x), labels).backward()
            optimiser.step()
        assert all(fake.events == [] for fake in fakes)
        return {name: tensor.cpu() for name, tensor in module.state_dict().items()}

    fakes: list[FakeDevice] = []
    expected = trained("cpu")
    with FakeDevice(kind) as there:
        fakes.append(there)
        got = trained(kind)
    assert all(torch.equal(expected[name], got[name]) for name in expected)
