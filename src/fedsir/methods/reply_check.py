"""From what came over the wire to the reply that a task declares; whatever does not fit is named by its field."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

import numpy as np
import torch
from torch import Tensor

from fedsir.data.shapes import Shape
from fedsir.methods import replies
from fedsir.methods.replies import STAYS, Reply, Weights

if TYPE_CHECKING:
    from fedsir.methods.base import ServerState

NOT_FINITE = "is not finite"


class ReplyFault(Exception):
    """A reply that is not what its task declares; the message names the field."""


@dataclass(frozen=True)
class Form:
    """What a server knows that replies must fit.

    model : name → type and shape of each tensor of the model that is being trained
    sizes : of axes by name: "classes", "features", and "pairs" of two different classes
    """

    model: dict[str, tuple[torch.dtype, torch.Size]]
    sizes: Mapping[str, int]

    @classmethod
    def of(cls, model: Weights, **sizes: int) -> Form:
        if "classes" in sizes:
            sizes["pairs"] = math.comb(sizes["classes"], 2)
        return cls({name: (tensor.dtype, tensor.shape) for name, tensor in model.items()}, sizes)

    def fault_of(self, model: Any) -> str | None:
        """Return what of names, types and shapes of a model is wrong; None if nothing is."""
        if not isinstance(model, dict) or not all(isinstance(tensor, Tensor) for tensor in model.values()):
            return "is not a model"
        if {name: (tensor.dtype, tensor.shape) for name, tensor in model.items()} != self.model:
            return "has other names, types or shapes than the model that was sent"
        return None


def reply_type(task: Callable[..., Any]) -> type[Reply]:
    """Return the type of reply that a task declares; a task that declares none is a TypeError."""
    function = getattr(task, "__func__", task)
    declared = function.__annotations__.get("return")
    if isinstance(declared, str):
        try:
            # That of the reply alone: names of the payload's types may be there for a type checker only.
            only = type("Only", (), {"__annotations__": {"reply": declared}})
            declared = typing.get_type_hints(only, globalns=function.__globals__)["reply"]
        except NameError as problem:
            raise TypeError(
                f"declares a reply that cannot be found when it runs: {problem}. Import it outside TYPE_CHECKING."
            ) from None
    if not (isinstance(declared, type) and issubclass(declared, Reply) and dataclasses.is_dataclass(declared)):
        raise TypeError("must declare what it replies, a dataclass derived from Reply, as in `-> Trained`.")
    return declared


def to_tree(value: Any) -> Any:
    """Return a reply as a payload tree, without copying what is in it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        values = [(field, getattr(value, field.name)) for field in dataclasses.fields(value)]
        return {
            field.name: to_tree(inner) for field, inner in values if inner is not None or STAYS not in field.metadata
        }
    return value


def read_reply(declared: type[Reply], tree: Any, form: Form) -> Reply:
    """Return the reply in a payload tree, or raise a `ReplyFault`."""
    reply: Reply = _Reader(form).dataclass(declared, tree, "")
    if (fault := reply.fault()) is not None:
        raise ReplyFault(fault)
    return reply


def read_state(state_type: type[ServerState], tree: Any, form: Form) -> ServerState:
    """Return a server's state from its payload tree, or raise a `ReplyFault`; a model may be empty there."""
    reader = _Reader(form, may_be_empty=True)
    if not isinstance(tree, dict) or tree.keys() != {field.name for field in dataclasses.fields(state_type)}:
        raise ReplyFault("the server's state has other fields than the method's")
    checked = {
        name: reader.value(hint, tree[name], name) for name, hint in _hints(state_type).items() if name != "split"
    }
    return state_type.from_tree(tree | checked)


class _Reader:
    """Reads one reply; sizes without a value yet are those of the first array that has them."""

    def __init__(self, form: Form, *, may_be_empty: bool = False) -> None:
        self._form, self._sizes, self._may_be_empty = form, dict(form.sizes), may_be_empty

    def dataclass(self, declared: type[Any], tree: Any, where: str) -> Any:
        if not isinstance(tree, dict):
            raise ReplyFault(f"{where or 'the reply'} is not a mapping")
        hints, fields = _hints(declared), dataclasses.fields(declared)
        if unknown := sorted(tree.keys() - {field.name for field in fields}):
            raise ReplyFault(f"{_at(where, unknown[0])} is not a field of {declared.__name__}")
        values = {}
        for field in fields:
            place = _at(where, field.name)
            if field.name not in tree and field.default is dataclasses.MISSING:
                raise ReplyFault(f"{place} is missing")
            if field.name in tree:
                values[field.name] = self.value(hints[field.name], tree[field.name], place)
        return declared(**values)

    def value(self, hint: Any, value: Any, where: str) -> Any:
        """Return a value as its type declares it."""
        origin, args = get_origin(hint), get_args(hint)
        if origin is Annotated:
            marks = args[1:]
            if replies.MODEL in marks:
                return self._checked_model(value, where)
            shape = next((mark for mark in marks if isinstance(mark, Shape)), None)
            return self._array(args[0], value, where, shape)
        if origin in (Union, types.UnionType):
            if value is None and type(None) in args:
                return None
            (inner,) = (arg for arg in args if arg is not type(None))
            return self.value(inner, value, where)
        if origin in (list, tuple):
            if not isinstance(value, list):
                raise ReplyFault(f"{where} is not a list")
            return origin(self.value(args[0], entry, f"{where}[{i}]") for i, entry in enumerate(value))
        if origin is dict:
            if not isinstance(value, dict):
                raise ReplyFault(f"{where} is not a mapping")
            return {key: self.value(args[1], entry, _at(where, key)) for key, entry in value.items()}
        if dataclasses.is_dataclass(hint):
            return self.dataclass(typing.cast("type[Any]", hint), value, where)
        if hint is Tensor or (origin or hint) is np.ndarray:
            return self._array(hint, value, where, None)
        return _scalar(hint, value, where)

    def _checked_model(self, value: Any, where: str) -> Weights:
        if value == {} and self._may_be_empty:
            return {}
        if (fault := self._form.fault_of(value)) is not None:
            raise ReplyFault(f"{where} {fault}")
        for name, tensor in value.items():
            _check_finite(tensor, _at(where, name))
        return typing.cast("Weights", value)

    def _array(self, hint: Any, value: Any, where: str, shape: Shape | None) -> Any:
        if not isinstance(value, Tensor):
            raise ReplyFault(f"{where} is not an array")
        if shape is not None:
            self._check_shape(value, where, shape)
        _check_finite(value.masked_fill(value.isnan(), 0) if shape and shape.has_gaps else value, where)
        return value.numpy() if (get_origin(hint) or hint) is np.ndarray else value

    def _check_shape(self, value: Tensor, where: str, shape: Shape) -> None:
        if len(value.shape) != len(shape.axes):
            raise ReplyFault(f"{where} has {len(value.shape)} axes instead of {shape}")
        for axis, size in zip(shape.axes, value.shape, strict=True):
            expected = axis if isinstance(axis, int) else self._sizes.setdefault(axis, size)
            if size != expected:
                raise ReplyFault(f"{where} is {tuple(value.shape)}, not {shape} with {axis} = {expected}")
        found = "float" if value.is_floating_point() else "bool" if value.dtype == torch.bool else "int"
        if found != shape.kind:
            raise ReplyFault(f"{where} holds {value.dtype}, not {shape.kind}")


def _scalar(hint: Any, value: Any, where: str) -> Any:
    if hint is Any:
        return value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if hint is float:
        if not is_number:
            raise ReplyFault(f"{where} is not a number")
        if not math.isfinite(value):
            raise ReplyFault(f"{where} {NOT_FINITE}")
        return float(value)
    if hint is int and not (is_number and isinstance(value, int)):
        raise ReplyFault(f"{where} is not a whole number")
    if hint in (bool, str) and not isinstance(value, hint):
        raise ReplyFault(f"{where} is not a {'text' if hint is str else 'yes or no'}")
    return value


def _check_finite(tensor: Tensor, where: str) -> None:
    if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
        raise ReplyFault(f"{where} {NOT_FINITE}")


def _at(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


_KNOWN: dict[type[Any], dict[str, Any]] = {}


def _hints(declared: type[Any]) -> dict[str, Any]:
    if declared not in _KNOWN:
        _KNOWN[declared] = typing.get_type_hints(declared, include_extras=True)
    return _KNOWN[declared]
