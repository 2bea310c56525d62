"""Writes docs/privacy.md, what leaves a client message by message, from the types of the replies: `make docs`."""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

import numpy as np
import torch
from torch import Tensor

from fedsir.auditing.federated import FederatedAudit
from fedsir.data.shapes import Shape
from fedsir.engines.wire import encode
from fedsir.methods import replies
from fedsir.methods.base import AnyMethod
from fedsir.methods.baseline_settings import RHFLConfig
from fedsir.methods.fedsir_settings import FedSIRConfig
from fedsir.methods.registry import BUILT_IN, method_class
from fedsir.methods.replies import Reply, Weights
from fedsir.methods.reply_check import reply_type
from fedsir.models.build import build_model, training_model
from fedsir.models.config import ModelConfig
from fedsir.models.weights import weights_of
from fedsir.randomness import KeyedRandom

PAGE = Path(__file__).parent / "privacy.md"

INTRODUCTION = """\
# What leaves a client

<!-- `make docs` writes this page from the types of the replies in src/fedsir; edit them, not the page. -->

In federated learning data stay with the client. What does leave is listed here, message by message, for every method. A
task is a function that the server may ask a client to run. Its reply has a declared type, and the server refuses
anything else: a field too many, another shape, a number that is not finite. Images, given labels and corrected labels
are in none of them.

Two things are not in the tables. A client whose task fails sends one line, the error's kind and message, instead of a
reply. And numbers computed from data say something about the data: a model's weights most of all, counts of samples per
class plainly. fedsir adds no noise and no encryption of its own; these are matters of the network it runs on.

What a client remembers between rounds stays with it, corrected labels among it. In a simulation everything is on one
machine, so the evaluator can look at it and score it. On real sites ([deploy.md](deploy.md)) nobody but the site can.

Besides the replies below, a real site sends: once, who it is and the form of its data
([the list](deploy.md#what-sites-agree-on));
with each reply, the name of the version in which it keeps what it remembers, and the seconds it took; in rounds that
are evaluated, how many of the images it held out the model got right, and how many there are.

The sizes are those of CIFAR-10: {classes} classes, {features} features, a ResNet-18 of {numbers:,} numbers
({model_bytes} on the wire), residual subspaces of {residual rank} vectors, {images} public images per exchange. They
count the bytes that travel, as `metrics.jsonl` does under `bytes_up`. A range goes from a message
without the fields that may be left out to one with all of them.

## By method

"The server sends" names what goes down to the client with the task.
"""

AUDIT = """\
## A label audit

[`fedsir flower audit`](audit.md#on-a-flower-federation) trains nothing, and what it finds about single samples stays
with the site. Counts from 1 to 4 do not leave in its last reply, whatever the server asks for. Its first one does have
the count and the sum of every class, as in the preset plus. `--min-class-samples 20` keeps smaller classes out of
these.
"""

SENDING_LESS = """\
## Sending less

Two settings of FedSIR's keep more with the client; both may be set for any preset.

**`method.share = "minimal"`** sends only what the server computes with. Losses, and how many labels were corrected,
only tell how training goes: they stay. So does the model that a client has trained in Stage I, until the server knows
that the client is clean; that of a noisy client never leaves. Clean clients are then asked for it (`hand_over`). The
run ends in the same model. Residual subspaces leave only where somebody looks at them: not with
`relabel.rule = "direction"` if `kd.on = "all"`. With `relabel.weight = "count"` the gaps and shares of singular values
are zeros. With `split = "rates"`, as in the preset plus, and a network that is not pretrained every client's model
leaves in Stage I, because clients are judged under the average of all. A pretrained network judges them before anybody
trains, and no model leaves then. The table has bytes, for a pretrained network, as CIFAR-10's is.

**`method.min_class_samples = 20`** keeps a class of which a client has fewer samples than that to itself: it leaves
neither as a direction nor as a residual subspace, is in no sum of features, in no count, and in no pair of classes. To
the server it looks like a class that the client lacks. The message keeps its size. What leaves of all classes together
still does: the model, the number of samples, and in Stage I the two numbers that the classes' similarities amount to.
`identify.min_class_samples` says which classes count in these; where fewer than two have so many samples, all do.
Pruning has this setting, too.

With the default, 1, a class of a single sample leaves as a direction, which is that sample's feature vector up to its
length: set it higher where that matters.

On a real federation a class's name stays known all the same: sites agree on class names before they begin. And a model
that was trained on a class leaves, whatever this setting says.
"""


@dataclass(frozen=True)
class Example:
    """The sizes that the page computes with."""

    model: Weights
    sizes: dict[str, int]


def cifar10() -> Example:
    """Return CIFAR-10 with the model that clients train by default."""
    config = ModelConfig(name="resnet18", weights="none")
    stock = build_model(config, n_classes=10, in_channels=3, random=KeyedRandom(0), image_size=(32, 32))
    module = training_model(stock, config.name, (32, 32))
    sizes = {
        "classes": 10,
        "pairs": 45,
        "features": int(module.head.in_features),  # type: ignore[union-attr, arg-type]
        "residual rank": FedSIRConfig(name="fedsir").relabel.residual_rank,
        "images": RHFLConfig(name="rhfl").public_batch_size,
    }
    return Example(weights_of(module), sizes)


@dataclass(frozen=True)
class Field:
    """One line of a reply's table: its dotted name, what it means, what it is, and an example of it."""

    name: str
    meaning: str
    kind: str
    is_optional: bool
    example: Any


def meanings(declared: type[Any]) -> dict[str, str]:
    """Return field → meaning from the lines `field : meaning` in the docstrings of a dataclass and its bases."""
    found: dict[str, str] = {}
    for cls in reversed(declared.__mro__):
        text = inspect.cleandoc(cls.__dict__.get("__doc__") or "")
        found |= {name: " ".join(said.split()) for name, said in re.findall(r"^(\w+) : (.+(?:\n +.+)*)", text, re.M)}
    return found


def fields_of(declared: type[Any], example: Example, prefix: str = "", *, may_miss: bool = False) -> Iterator[Field]:
    """Yield the fields of a reply, those of dataclasses in it too; a field without a meaning is an error."""
    said, hints = meanings(declared), typing.get_type_hints(declared, include_extras=True)
    for field in dataclasses.fields(declared):
        if field.name not in said:
            raise LookupError(f"{declared.__name__}.{field.name}: its docstring has no line `{field.name} : meaning`")
        hint, is_optional = _required(hints[field.name])
        if dataclasses.is_dataclass(hint):
            inner = typing.cast("type[Any]", hint)
            yield from fields_of(inner, example, f"{prefix}{field.name}.", may_miss=may_miss or is_optional)
            continue
        kind, value = _example(hint, said[field.name], example)
        meaning = re.sub(r"^\([^)]*\)( \w+)?, ", "", said[field.name])  # the shape has a column of its own
        is_optional = is_optional or may_miss
        yield Field(prefix + field.name, meaning, f"{kind}, or none" if is_optional else kind, is_optional, value)


def _required(hint: Any) -> tuple[Any, bool]:
    """Return a type without its None, and whether it had one."""
    if get_origin(hint) in (Union, types.UnionType):
        (inner,) = (arg for arg in get_args(hint) if arg is not type(None))
        return inner, True
    return hint, False


def _example(hint: Any, meaning: str, example: Example) -> tuple[str, Any]:
    """Return what a field is, in words, and a value of that kind."""
    if get_origin(hint) is Annotated:
        inner, *marks = get_args(hint)
        if replies.MODEL in marks:
            return "weights of the model", example.model
        (shape,) = (mark for mark in marks if isinstance(mark, Shape))
        sizes = [axis if isinstance(axis, int) else example.sizes[axis] for axis in shape.axes]
        return f"{shape} ({shape.kind})", torch.zeros(sizes, dtype=_dtype(inner, shape, meaning))
    if get_origin(hint) is list:
        kind, value = _example(get_args(hint)[0], meaning, example)
        return f"list: {kind}", [value]
    return {float: "number", int: "whole number", bool: "yes or no", str: "text"}[hint], hint()


def _dtype(inner: Any, shape: Shape, meaning: str) -> torch.dtype:
    """Return the type of an array's entries; that of a float tensor is float32 unless its meaning names another."""
    if inner is Tensor:
        wide = torch.float64 if "float64" in meaning else torch.float32
        return {"float": wide, "int": torch.int64, "bool": torch.bool}[shape.kind]
    (scalar,) = get_args(get_args(inner)[1])
    return torch.from_numpy(np.zeros(0, scalar)).dtype


def message_bytes(declared: type[Reply], example: Example, *, is_full: bool, absent: Collection[str] = ()) -> int:
    """Return the size on the wire of a reply with all fields but `absent`, or without those that may be left out."""
    tree: dict[str, Any] = {}
    may_stay = {field.name for field in dataclasses.fields(declared) if replies.STAYS in field.metadata}
    for field in fields_of(declared, example):
        *path, name = field.name.split(".")
        if (path or [name])[0] in absent:
            if (path or [name])[0] not in may_stay:
                tree[(path or [name])[0]] = None
            continue
        if not is_full and (path or [name])[0] in may_stay:
            continue
        node = tree
        for part in path:
            node = node.setdefault(part, {})
        node[name] = field.example if is_full or not field.is_optional else None
    return len(encode(tree))


def _sizes(declared: type[Reply], example: Example) -> str:
    sizes = (message_bytes(declared, example, is_full=is_full) for is_full in (False, True))
    least, most = map(_readable, sorted(sizes))  # "null" is longer than a zero
    return most if least == most else f"{least} to {most}"


def _field_bytes(value: Any) -> str:
    if isinstance(value, dict):
        return _readable(sum(tensor.nbytes for tensor in value.values()))
    return _readable(value.nbytes) if isinstance(value, Tensor) else "–"


def _readable(n: int) -> str:
    return f"{n:,} bytes" if n < 10_000 else f"{n / 1000:.1f} kB" if n < 1_000_000 else f"{n / 1_000_000:.2f} MB"


def _sent_down(task: Callable[..., Any]) -> str:
    names = list(inspect.signature(task).parameters)[2:]  # after self and client
    return ", ".join(f"`{name}`" for name in names) or "nothing"


def _told(task: Callable[..., Any]) -> str:
    return " ".join((inspect.getdoc(task) or "").split())


# What of a reply is not there whatever `share` says, by preset; for a pretrained network.
NOT_THERE = {
    "authors": {"identify": ("pairs",), "train_clean": ("moments",), "train_noisy": ("noise_rate", "doubt")},
    "paper": {"identify": ("pairs",), "train_clean": ("moments",), "train_noisy": ("noise_rate", "doubt")},
    "plus": {"identify": ("pairs", "loss", "model"), "train_clean": ("spectra",)},
}


def _minimal(example: Example) -> Iterator[str]:
    """Yield the table of what `share = "minimal"` keeps back in each preset."""
    yield "| preset | task | stays with the client | `all` | `minimal` |"
    yield "|---|---|---|---|---|"
    for preset, not_there in NOT_THERE.items():
        config = FedSIRConfig(name="fedsir", preset=preset, share="minimal").fitted(is_pretrained=True)
        for task, stays in config.stays.items():
            if (task == "hand_over" and not config.hands_over) or (task == "warm_up" and not config.warms_up):
                continue
            reply = reply_type(method_class("fedsir").tasks()[task])
            absent = not_there.get(task, ())
            before, after = (
                message_bytes(reply, example, is_full=True, absent=names) for names in (absent, (*absent, *stays))
            )
            if task == "hand_over":
                before, stays = 0, ()
            kept = ", ".join(f"`{name}`" for name in stays if name not in absent)
            size = f"{before:,}" if before else "not asked"
            yield f"| {preset} | `{task}` | {kept or '–'} | {size} | {after:,} |"
    yield ""


def _tasks(method: type[AnyMethod], example: Example, declared: dict[str, type[Reply]]) -> Iterator[str]:
    """Yield the table of a method's tasks; their replies go into `declared`."""
    yield "| task | what it does, and when | the server sends | reply | size |"
    yield "|---|---|---|---|---|"
    for task_name, task in method.tasks().items():
        reply = reply_type(task)
        declared[reply.__name__] = reply
        link = f"[{reply.__name__}](#{reply.__name__.lower()})"
        cells = (f"`{task_name}`", _told(task), _sent_down(task), link, _sizes(reply, example))
        yield f"| {' | '.join(cells)} |"
    yield ""


def page(example: Example) -> str:
    """Return the text of the page."""
    parts = [
        INTRODUCTION.format(
            numbers=sum(tensor.numel() for tensor in example.model.values()),
            model_bytes=_readable(len(encode(example.model))),
            **example.sizes,
        )
    ]
    declared: dict[str, type[Reply]] = {}
    for name in BUILT_IN:
        parts += [f"### {name}\n", *_tasks(method_class(name), example, declared)]
    parts += [AUDIT, *_tasks(FederatedAudit, example, declared)]
    parts += [SENDING_LESS, *_minimal(example)]
    parts.append("## Replies\n")
    for name, reply in sorted(declared.items()):
        parts += [f"### {name}\n", (inspect.getdoc(reply) or "").split("\n\n")[0] + "\n"]
        parts += ["| field | meaning | what it is | bytes |", "|---|---|---|---|"]
        parts += [
            f"| `{field.name}` | {field.meaning} | {field.kind} | {_field_bytes(field.example)} |"
            for field in fields_of(reply, example)
        ]
        parts.append("")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(cifar10()), encoding="utf-8")
