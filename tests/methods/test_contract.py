"""What every method must keep, whatever it does: one suite over all that are registered."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedsir.data.federation import FederatedData, GroundTruth, build_federation
from fedsir.data.source import Source
from fedsir.engines.client_host import Answer, AnyCall, Call, ClientHost
from fedsir.engines.federation import EngineFederation
from fedsir.engines.replies import Replies
from fedsir.engines.wire import decode, encode
from fedsir.experiment.checkpoint import Checkpoint
from fedsir.experiment.progress import Silent
from fedsir.experiment.run_folder import RunFolder
from fedsir.methods.base import Client, Method, Server
from fedsir.methods.registry import known_methods, method_class

METHODS = sorted(known_methods())
every_method = pytest.mark.parametrize("method", METHODS)
# Late comers, rounds that change nothing, clients that come back: what a method remembers of them is in its state, too.
IN_PART: dict[str, Any] = {"rounds": 4, "participation": 0.6, "dropout": 0.2}
Runner = Callable[..., Any]
Deal = Callable[..., tuple[FederatedData, GroundTruth]]


def essence(run: Any) -> dict[str, Any]:
    """Return all of a run that must not depend on when, where and in how many goes it was done."""
    timeless = [{k: v for k, v in line.items() if not k.startswith("seconds")} for line in run.lines]
    result = {k: v for k, v in run.result.items() if k not in ("seconds", "run_dir")}
    with np.load(run.folder / "labels.npz") as labels:
        arrays = {name: labels[name].tolist() for name in labels.files}
    return {"result": result, "metrics": timeless, "labels": arrays}


@every_method
def test_two_runs_are_the_same(method: str, run_tiny: Runner, straight_run: Runner) -> None:
    again = run_tiny(method)
    assert essence(again) == essence(straight_run(method))
    assert len(again.result["model_sha256"]) == 64


@every_method
def test_another_seed_is_another_run(method: str, run_tiny: Runner, straight_run: Runner) -> None:
    assert run_tiny(method, seed=1).result["model_sha256"] != straight_run(method).result["model_sha256"]


@every_method
def test_the_number_of_workers_changes_nothing(method: str, run_tiny: Runner, straight_run: Runner) -> None:
    assert essence(run_tiny(method, workers=2)) == essence(straight_run(method))


@every_method
def test_replies_that_wait_on_disk_change_nothing(
    method: str, run_tiny: Runner, straight_run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedsir.engines.federation.Replies", partial(Replies, memory=0))
    assert essence(run_tiny(method)) == essence(straight_run(method))


class Interrupted(Exception):
    """Stands for Ctrl-C, a kill, a power cut."""


class StopAfterEachRound(Silent):
    def round_done(self, metrics: dict[str, Any]) -> None:
        raise Interrupted(metrics["round"])


@every_method
@pytest.mark.parametrize("over", [{}, IN_PART], ids=["with all", "in part"])
def test_a_run_in_pieces_equals_a_straight_one(
    method: str, over: dict[str, Any], run_tiny: Runner, straight_run: Runner, tmp_path: Path
) -> None:
    straight, out = straight_run(method, **over), tmp_path / "in-pieces"
    for t in range(straight.config.rounds + 1):
        with pytest.raises(Interrupted) as stopped:
            run_tiny(method, out=out, progress=StopAfterEachRound(), **over)
        assert stopped.value.args == (t,)
    assert essence(run_tiny(method, out=out, **over)) == essence(straight)


# Runs the settings of every FILE.toml in this folder to the end, or until round 1 is done, into the folder FILE.
ANOTHER_PROCESS = """
import sys, tomllib
from pathlib import Path
from fedsir.experiment.config import parse_config
from fedsir.experiment.progress import Silent
from fedsir.experiment.runner import Where, run_experiment

class StopAfterRoundOne(Silent):
    def round_done(self, metrics):
        if metrics["round"] == 1:
            raise InterruptedError

for path in sorted(Path().glob("*.toml")):
    progress = StopAfterRoundOne() if sys.argv[1:] == ["begin"] else Silent()
    try:
        run_experiment(parse_config(tomllib.loads(path.read_text())), Where(path.with_suffix(""), progress=progress))
    except InterruptedError:
        pass
"""


def test_another_process_goes_on_to_the_same_end(straight_run: Runner, tmp_path: Path) -> None:
    """Nothing hides in this process: neither memory in modules and classes, nor the order of a set."""
    for method in METHODS:
        (tmp_path / f"{method}.toml").write_text(straight_run(method).config.to_toml())
    for hash_seed, part in (("1", "begin"), ("2", "finish")):
        words = [sys.executable, "-c", ANOTHER_PROCESS, part]
        subprocess.run(words, cwd=tmp_path, env=os.environ | {"PYTHONHASHSEED": hash_seed}, check=True)
        assert all((tmp_path / method / "result.json").exists() == (part == "finish") for method in METHODS)
    for method in METHODS:
        straight, folder = straight_run(method), tmp_path / method
        elsewhere = replace(straight, folder=folder, result=json.loads((folder / "result.json").read_text()))
        assert essence(elsewhere) == essence(straight), method


def leaves(tree: dict[str, Any]) -> Iterator[Any]:
    """Yield what a tree of mappings holds."""
    for value in tree.values():
        yield from leaves(value) if isinstance(value, dict) else [value]


@every_method
def test_the_state_survives_the_wire(method: str, straight_run: Runner) -> None:
    run = straight_run(method)
    content = RunFolder(run.folder).read_checkpoint()
    assert content is not None
    cls = method_class(method)
    checkpoint = Checkpoint.from_bytes(content, cls, run.config.sha256)
    assert checkpoint.round == 2
    assert type(checkpoint.state) is cls.State
    assert checkpoint.to_bytes() == content
    again = cls.State.from_tree(decode(encode(checkpoint.state.to_tree())))
    assert type(again) is type(checkpoint.state)
    assert encode(again.to_tree()) == encode(checkpoint.state.to_tree())
    for state in checkpoint.client_states.values():
        assert all(isinstance(value, torch.Tensor) for value in leaves(decode(state)))


@every_method
def test_a_method_remembers_nothing_outside_its_state(
    method: str, run_tiny: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Method] = []
    original = Method.__init__

    def noted(self: Method, config: Any) -> None:
        original(self, config)
        made.append(self)

    monkeypatch.setattr(Method, "__init__", noted)
    config = run_tiny(method).config.method
    assert len(made) >= 2  # the server's half and the clients' half
    assert all(vars(instance) == {"config": config} for instance in made)


# ---------------------------------------------------------------- what a client can reach


def reachable(root: Any) -> Iterator[Any]:
    """Yield every object that can be reached from `root` by attributes, items, bound methods and closures."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen or isinstance(node, type | str | bytes | int | float | None):
            continue
        seen.add(id(node))
        yield node
        if isinstance(node, dict):
            waiting += [*node.keys(), *node.values()]
        elif isinstance(node, list | tuple | set | frozenset):
            waiting += node
        elif isinstance(node, torch.Tensor):
            base = node._base
            waiting += [base] if base is not None else []
            continue
        if callable(node):
            waiting += [cell.cell_contents for cell in getattr(node, "__closure__", None) or ()]
            waiting += [getattr(node, "__self__", None)]
        waiting.append(getattr(node, "__dict__", None))


@every_method
def test_no_task_can_reach_the_true_labels(
    method: str, run_tiny: Runner, digits: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed: list[Client | Server | EngineFederation] = []
    for maker in ("client", "_server"):
        original = getattr(ClientHost, maker)

        def noted(self: ClientHost, call: Any, original: Any = original) -> Any:
            handed.append(original(self, call))
            return handed[-1]

        monkeypatch.setattr(ClientHost, maker, noted)

    def federation(*words: Any, **more: Any) -> EngineFederation:
        handed.append(EngineFederation(*words, **more))  # what the server half gets
        return handed[-1]  # type: ignore[return-value]

    monkeypatch.setattr("fedsir.experiment.runner.EngineFederation", federation)
    # One round, so that no label was corrected (perhaps to the true one) before a client was handed over.
    config = run_tiny(method, rounds=1).config
    data, truth = build_federation(config.data, digits, seed=config.seed)
    assert truth.true_labels is not None
    assert {client.id for client in handed if isinstance(client, Client)} == {"0", "1", "2", "3", "4"}
    assert any(isinstance(one, EngineFederation) for one in handed)
    # All true labels, the noisy clients', those of the test, and of samples that no client has, which may be public.
    nobodys = np.setdiff1d(np.arange(len(digits.train_labels)), data.source_index)
    pieces = [truth.true_labels, *(truth.true_labels[data.rows(k)] for k in "124")]
    pieces += [data.test_labels, digits.train_labels[nobodys]]
    if data.public_images is not None:
        rows = [
            int(np.flatnonzero((digits.train_images == image).all(axis=(1, 2, 3)))[0]) for image in data.public_images
        ]
        pieces.append(digits.train_labels[rows])
    n_arrays = 0
    for node in reachable(handed):
        assert not isinstance(node, GroundTruth | FederatedData)
        if isinstance(node, torch.Tensor | np.ndarray):
            n_arrays += 1
            for piece in pieces:
                assert not (tuple(node.shape) == piece.shape and np.array_equal(np.asarray(node), piece))
    assert n_arrays > 10  # the walk got somewhere


# ---------------------------------------------------------------- odd federations


def alternating(digits: Source, n: int, start: int, *, without: tuple[int, ...] = ()) -> list[int]:
    """Return n rows of the digits, from `start` on, in which all classes but `without` take turns."""
    by_class = [np.flatnonzero(digits.train_labels == c)[start : start + n] for c in range(10) if c not in without]
    return [int(by_class[i % len(by_class)][i // len(by_class)]) for i in range(n)]


def shifted(digits: Source, rows: list[int], share: float) -> list[int]:
    """Return the labels of these rows with a share of them moved to another class."""
    labels = digits.train_labels[rows].tolist()
    n_wrong = round(share * len(rows))
    return [(label + 1 + i % 9) % 10 if i < n_wrong else label for i, label in enumerate(labels)]


def clean_and_noisy(digits: Source) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """Return rows of four clients with forty digits, and wrong labels for two of them."""
    rows = {f"k{i}": alternating(digits, 40, start=5 * i) for i in range(4)}
    return rows, {k: shifted(digits, rows[k], 0.8) for k in ("k1", "k3")}


def check_finished(run: Any) -> None:
    """A run that came through has a usable model and strict JSON in its folder."""
    assert 0 <= run.result["accuracy"] <= 1
    assert run.lines[-1]["round"] == run.config.rounds
    texts = [path.read_text() for path in run.folder.glob("*.json")]
    for text in [*texts, *(run.folder / "metrics.jsonl").read_text().splitlines()]:
        json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


def check_unharmed(run: Any) -> None:
    """It came through, and not because odd clients were left out: nobody failed, and everybody was asked once."""
    check_finished(run)
    assert [line["failures"] for line in run.lines] == [{}] * len(run.lines)
    heard = {client for line in run.lines for client in line["bytes_up_by_client"]}
    assert heard == set(json.loads((run.folder / "data.json").read_text())["client_sizes"])


@every_method
def test_a_client_with_one_class(method: str, run_tiny: Runner, digits: Source, deal: Deal) -> None:
    rows, wrong = clean_and_noisy(digits)
    rows["sevens"] = np.flatnonzero(digits.train_labels == 7)[40:60].tolist()
    check_unharmed(run_tiny(method, federation=deal(rows, wrong)))


@every_method
def test_a_client_with_one_sample(method: str, run_tiny: Runner, digits: Source, deal: Deal) -> None:
    rows, wrong = clean_and_noisy(digits)
    check_unharmed(run_tiny(method, federation=deal({"lonely": [1000], **rows}, wrong)))


@every_method
def test_a_class_that_nobody_holds(method: str, run_tiny: Runner, digits: Source, deal: Deal) -> None:
    rows = {f"k{i}": alternating(digits, 36, start=5 * i, without=(4,)) for i in range(4)}
    labels = {k: digits.train_labels[rows[k]].tolist() for k in ("k1", "k3")}
    swapped = {k: [{0: 1, 1: 0, 2: 3, 3: 2, 5: 6, 6: 5}.get(c, c) for c in own] for k, own in labels.items()}
    data, truth = deal(rows, swapped)
    assert 4 not in data.given_labels
    run = run_tiny(method, federation=(data, truth))
    check_unharmed(run)
    with np.load(run.folder / "labels.npz") as labels_file:
        assert 4 not in labels_file["corrected"]


@every_method
@pytest.mark.parametrize("who_is_noisy", ["none", "all"])
def test_everybody_alike(method: str, who_is_noisy: str, run_tiny: Runner) -> None:
    check_unharmed(run_tiny(method, data={"noisy_clients": who_is_noisy}))


@every_method
def test_one_client(method: str, run_tiny: Runner) -> None:
    check_unharmed(run_tiny(method, data={"n_clients": 1, "noisy_clients": "none", "n_train": 60}))


# ---------------------------------------------------------------- faults and partial participation


@every_method
def test_a_client_that_fails_mid_round_is_left_out(
    method: str, run_tiny: Runner, straight_run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = straight_run(method)
    split = straight.result
    groups = [split["clean_clients"], split["noisy_clients"]] if split["clean_clients"] else [list("01234")]
    asked = [[k for k in group if k in straight.lines[1]["bytes_up_by_client"]] for group in groups]
    victim = max(asked, key=len)[-1]  # whose group can do without it
    original = ClientHost.client

    def client_of(self: ClientHost, call: Call) -> Client:
        if call.client == victim and call.round == 1:
            raise MemoryError("no room")
        return original(self, call)

    monkeypatch.setattr(ClientHost, "client", client_of)
    run = run_tiny(method)
    check_finished(run)
    assert run.lines[1]["failures"] == {victim: "MemoryError: no room"}
    assert run.lines[2]["failures"] == {}
    assert victim not in run.lines[1]["bytes_up_by_client"]
    assert victim in run.lines[2]["bytes_up_by_client"]
    assert run.result["model_sha256"] != split["model_sha256"]


@every_method
def test_a_client_that_fails_after_it_has_answered_is_left_out(
    method: str, run_tiny: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Call] = []
    doomed: Call | None = None
    original = ClientHost.client

    def client_of(self: ClientHost, call: Call) -> Client:
        asked.append(call)
        if doomed is not None and call == replace(doomed, state=call.state, own=call.own):
            raise MemoryError("no room")
        return original(self, call)

    monkeypatch.setattr(ClientHost, "client", client_of)
    run_tiny(method, rounds=3)  # FedNoRo and FedELC ask twice in round 2
    tasks: dict[tuple[int, str], list[Call]] = {}
    for call in asked:
        tasks.setdefault((call.round, call.client), []).append(call)
    several = [calls for calls in tasks.values() if len(calls) > 1]
    if not several:
        pytest.skip("one task per client and round")
    doomed = several[0][-1]
    run = run_tiny(method, rounds=3)
    check_finished(run)
    t = doomed.round
    assert run.lines[t]["failures"] == {doomed.client: "MemoryError: no room"}
    assert doomed.client in run.lines[t]["bytes_up_by_client"]  # its first answer
    assert run.lines[t + 1]["failures"] == {}


@every_method
def test_partial_participation_and_drop_outs(method: str, straight_run: Runner) -> None:
    run = straight_run(method, **IN_PART)
    check_finished(run)
    drawn = [tuple(line["participants"]) for line in run.lines[1:]]
    assert all(len(participants) == 3 for participants in drawn)
    assert len(set(drawn)) > 1
    for line in run.lines[1:]:
        answered = set(line["bytes_up_by_client"])
        assert answered <= set(line["participants"])
        assert answered.isdisjoint(line["failures"])
    assert any("dropped out" in line["failures"].values() for line in run.lines)


# ---------------------------------------------------------------- what it costs, what it learns


@every_method
def test_bytes_add_up(method: str, run_tiny: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, dict[tuple[int, str], int]] = {"bytes_up": {}, "bytes_down": {}}
    original = ClientHost.answer

    def weighed(self: ClientHost, call: AnyCall, common: bytes) -> Answer:
        answer = original(self, call, common)
        if isinstance(call, Call):
            assert answer.reply is not None
            down = len(common) + (len(call.own) if decode(call.own) else 0)
            for way, n in (("bytes_up", len(answer.reply)), ("bytes_down", down)):
                key = (call.round, call.client)
                seen[way][key] = seen[way].get(key, 0) + n
        return answer

    monkeypatch.setattr(ClientHost, "answer", weighed)
    run = run_tiny(method)
    n_model_bytes = (run.folder / "model.safetensors").stat().st_size
    for way in ("bytes_up", "bytes_down"):
        for line in run.lines:
            assert line[way] == sum(line[f"{way}_by_client"].values())
            assert all(isinstance(n, int) and n > 0 for n in line[f"{way}_by_client"].values())
        told = {(line["round"], k): n for line in run.lines for k, n in line[f"{way}_by_client"].items()}
        assert told == seen[way]
        assert run.result[way] == sum(line[way] for line in run.lines)
        # Nobody can average without at least one model's worth of traffic per round; those who keep their own models
        # (all of which are in the file) send answers.
        least = 5 * 24 * 10 * 4 if method_class(method).is_personal else n_model_bytes / 2
        assert all(line[way] > least for line in run.lines[1:])


# The answers of a model that has seen one round are no labels to learn from.
TO_LEARN: dict[str, dict[str, Any]] = {
    "rofl": {"pseudo_label_from": 3},
    "fedned": {"threshold": 1.2, "confidence": 0.5},
    "rhfl": {"pretrain_epochs": 6},
}


@every_method
def test_it_learns(method: str, run_tiny: Runner) -> None:
    run = run_tiny(
        method,
        rounds=3,
        evaluate_every=3,
        data={"n_train": 400, "n_test": None, "noise_rate": 0.0},
        method={"epochs": 3, "lr": 0.005, **TO_LEARN.get(method, {})},
    )
    assert run.result["accuracy"] > 0.6  # chance is 0.1
