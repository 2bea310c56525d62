"""An accelerator for machines without one: tensors that compute on the CPU but behave as if they lay elsewhere.

Inside ``with FakeDevice("cuda") as fake:`` the names "cuda" and "cuda:0" work wherever torch takes a device. A tensor
there says ``device == cuda:0``, cannot be turned into NumPy, and does not mix with tensors of the CPU, save where CUDA
lets it: 0-dim CPU tensors in pointwise operations, CPU indices into a device tensor, ``copy_``. Values are those of the
CPU, bit for bit. ``FakeDevice("mps")`` also has no float64. What crosses over, and what makes the host wait, is written
down in ``fake.events``.

How: a wrapper subclass holds the real tensor and claims torch's device "lazy", the one accelerator besides "meta" whose
backward pass the autograd engine of a CPU build runs. A function mode turns "cuda" into "lazy:0" before torch could
try to start CUDA; a dispatch mode sees every operation below autograd.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
STAND_IN = torch.device("lazy:0")
HOST = torch.device("cpu")
NO_FLOAT64 = (
    "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. "
    "Please use float32 instead."
)

INDEXING = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_, aten._unsafe_index}
# The host must know a value, or a size that depends on values, before it can go on.
WAITING = {
    aten._local_scalar_dense,
    aten.equal,
    aten.nonzero,
    aten.masked_select,
    aten.bincount,
    aten._unique2,
    aten.unique_consecutive,
}
# Take a 0-dim CPU tensor as a number, though torch does not tag them as pointwise.
TAKES_CPU_SCALAR = {aten.fill, aten.fill_, aten.masked_fill, aten.masked_fill_, aten.index_put, aten.index_put_}


@dataclass(frozen=True)
class Event:
    """kind : "upload" (host to device), "download" (device to host) or "wait"; where : the line of fedsir behind it."""

    kind: str
    operation: str
    where: str


class DeviceTensor(torch.Tensor):
    """A tensor on a fake device."""

    held: torch.Tensor
    home: FakeDevice

    @staticmethod
    def __new__(cls, real: torch.Tensor, home: FakeDevice) -> DeviceTensor:
        made: DeviceTensor = torch.Tensor._make_wrapper_subclass(
            cls,
            real.shape,
            strides=real.stride(),
            storage_offset=real.storage_offset(),
            dtype=real.dtype,
            device=STAND_IN,
        )
        return made

    def __init__(self, real: torch.Tensor, home: FakeDevice) -> None:
        super().__init__()
        self.held, self.home = real, home

    __torch_function__ = torch._C._disabled_torch_function_impl  # results are not to be converted to this class

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        home = next(leaf.home for leaf in _leaves((args, kwargs)) if isinstance(leaf, DeviceTensor))
        return home.run(func, args, kwargs or {})

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self.home.device

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return self.home.device.type == "cuda"

    def numpy(self, *, force: bool = False) -> Any:
        if force:
            return self.cpu().numpy()
        raise TypeError(
            f"can't convert {self.device} device type tensor to numpy. "
            "Use Tensor.cpu() to copy the tensor to host memory first."
        )

    def tolist(self) -> Any:
        self.home.note("download", "tolist")
        return self.held.tolist()

    def __format__(self, specification: str) -> str:
        return format(self.item() if self.ndim == 0 else repr(self), specification)

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"DeviceTensor({self.held!r}, device={self.device})"


class FakeDevice:
    """A fake accelerator, there while the block is open."""

    def __init__(self, kind: str) -> None:
        self.device = torch.device(kind, 0)
        self.events: list[Event] = []
        self._names = {kind, f"{kind}:0"}

    def __enter__(self) -> FakeDevice:
        self._open = ExitStack()
        self._open.enter_context(_Dispatch(self))
        self._open.enter_context(_Functions(self))
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def count(self, kind: str) -> int:
        return sum(event.kind == kind for event in self.events)

    def note(self, kind: str, operation: str) -> None:
        frames = [frame for frame in _frames() if frame.f_globals.get("__name__", "").startswith("fedsir.")]
        where = f"{frames[0].f_globals['__name__']}:{frames[0].f_lineno}" if frames else ""
        self.events.append(Event(kind, operation, where))

    def wrap(self, real: torch.Tensor) -> DeviceTensor:
        if self.device.type == "mps" and real.dtype in (torch.float64, torch.complex128):
            raise TypeError(NO_FLOAT64)
        with torch.inference_mode(real.is_inference()):  # a view of a normal tensor is one even in inference mode
            return DeviceTensor(real, self)

    def stand_in_for(self, value: Any) -> Any:
        """Return torch's own name for this device where `value` names it, else `value`."""
        is_ours = (isinstance(value, torch.device) and str(value) in self._names) or (
            isinstance(value, str) and value in self._names
        )
        return STAND_IN if is_ours else value

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Compute one operation on the real tensors, after checking that the device could."""
        packet, leaves = func.overloadpacket, list(_leaves((args, kwargs)))
        ours = [leaf for leaf in leaves if isinstance(leaf, DeviceTensor)]
        asked = kwargs.get("device")
        if not ours and asked != STAND_IN:
            return func(*args, **kwargs)
        if func._can_decompose():  # made of other operations; autograd takes it apart, inference mode does not
            with _Dispatch(self):
                return func.decompose(*args, **kwargs)
        is_here = asked == STAND_IN if asked is not None else bool(ours)

        if packet in (aten._to_copy, aten.copy_):
            self._note_copy(packet, args, kwargs, is_here)
        elif ours:
            self._refuse_mixing(func, args, kwargs, leaves)
        if is_here and any(isinstance(leaf, torch.Generator) for leaf in leaves):
            raise RuntimeError(f"Expected a '{self.device.type}' device type for generator but found 'cpu'")
        masks = (torch.bool, torch.uint8)
        if packet in WAITING or (packet in INDEXING and any(i.dtype in masks for i in _indices(args))):
            self.note("wait", str(packet))

        wrapper_of = {id(tensor.held): tensor for tensor in ours}
        real_args, real_kwargs = _mapped(_real, (args, kwargs))
        result = func(*real_args, **real_kwargs)
        for tensor in ours:
            assert tensor.shape == tensor.held.shape, f"{func} changes a shape in place, which this fake cannot follow"

        def back(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            return wrapper_of.get(id(value)) if id(value) in wrapper_of else self.wrap(value) if is_here else value

        written = [leaf for leaf in _written(func, args, kwargs) if not isinstance(leaf, DeviceTensor)]
        # A copy to the CPU in place gives back that CPU tensor.
        return result if any(result is leaf for leaf in written) else _mapped(back, result)

    def _note_copy(self, packet: Any, args: tuple[Any, ...], kwargs: dict[str, Any], is_here: bool) -> None:
        source, target_is_here, dtype = args[0], is_here, kwargs.get("dtype")
        if packet is aten.copy_:
            source, target_is_here, dtype = args[1], isinstance(args[0], DeviceTensor), args[0].dtype
        if isinstance(source, DeviceTensor) and not target_is_here:
            if self.device.type == "mps" and dtype == torch.float64:
                raise TypeError(NO_FLOAT64)  # Metal would have to write it: a copy on the way to the CPU cannot widen
            self.note("download", str(packet))
        elif target_is_here and not isinstance(source, DeviceTensor):
            self.note("upload", str(packet))

    def _refuse_mixing(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Any]) -> None:
        packet = func.overloadpacket
        strangers = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and not isinstance(leaf, DeviceTensor)]
        if packet in INDEXING and isinstance(args[0], DeviceTensor):
            indices = [index for index in _indices(args) if not isinstance(index, DeviceTensor)]
            for _ in indices:
                self.note("upload", str(packet))
            strangers = [stranger for stranger in strangers if all(stranger is not index for index in indices)]
        if packet in TAKES_CPU_SCALAR or torch.Tag.pointwise in func.tags:
            written = _written(func, args, kwargs)
            strangers = [s for s in strangers if s.ndim > 0 or any(s is leaf for leaf in written)]
        if strangers:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"{self.device} and cpu! ({packet})"
            )


class _Dispatch(TorchDispatchMode):
    def __init__(self, home: FakeDevice) -> None:
        super().__init__()
        self._home = home

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._home.run(func, args, kwargs or {})


class _Functions(TorchFunctionMode):
    """Gives torch a device that it knows in place of one that it would try to start."""

    def __init__(self, home: FakeDevice) -> None:
        super().__init__()
        self._home = home

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        home = self._home
        if func is torch.device:  # a name to be, and the name is what callers are to see
            return func(*args, **(kwargs or {}))
        args, kwargs = _mapped(home.stand_in_for, (args, kwargs or {}))
        if func in (torch.tensor, torch.as_tensor) and kwargs.get("device") == STAND_IN:
            home.note("upload", func.__name__)
            return home.wrap(func(*args, **{**kwargs, "device": HOST}))
        if func is torch.Tensor.cuda:
            return args[0].to(STAND_IN)
        if func is torch.Tensor.data.__set__ and isinstance(args[0], DeviceTensor):  # type: ignore[attr-defined]
            raise NotImplementedError("the fake device does not follow an assignment to .data")
        return func(*args, **kwargs)


def _leaves(value: Any) -> Iterator[Any]:
    """Yield what lists, tuples and dicts hold; torch's own walk over them takes most of a run's time here."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    else:
        yield value


def _mapped(change: Callable[[Any], Any], value: Any) -> Any:
    """Return the same lists, tuples and dicts with every value in them changed."""
    if isinstance(value, list | tuple):  # among them torch's named results, which are made of one sequence too
        return type(value)([_mapped(change, item) for item in value])
    if isinstance(value, dict):
        return {key: _mapped(change, item) for key, item in value.items()}
    return change(value)


def _real(value: Any) -> Any:
    if isinstance(value, DeviceTensor):
        return value.held
    return HOST if isinstance(value, torch.device) and value == STAND_IN else value


def _indices(args: tuple[Any, ...]) -> list[torch.Tensor]:
    return [index for index in args[1] if isinstance(index, torch.Tensor)]


def _written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Return the tensors that an operation changes: `self` of in-place ones, `out=`."""
    written: list[Any] = []
    for i, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = kwargs.get(argument.name) if argument.kwarg_only or i >= len(args) else args[i]
            written += _leaves(value)
    return written


def _frames() -> Iterator[Any]:
    frame = sys._getframe(2)
    while frame is not None:
        yield frame
        frame = frame.f_back  # type: ignore[assignment]
