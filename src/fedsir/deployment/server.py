"""The server's side: waits for sites, agrees with them, runs our loop over them, and writes down who did what."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors.torch
from flwr.app import Context, Message
from flwr.serverapp import Grid, ServerApp

from fedsir.data.directory import data_directory
from fedsir.data.naming import natural_order
from fedsir.data.source import load_source
from fedsir.deployment.agreement import Agreement, agree, fault_of_note
from fedsir.deployment.app_config import ServerConfig, method_in, read_app_config
from fedsir.deployment.site import HELD_OUT
from fedsir.engines.base import Call
from fedsir.engines.client_host import ClientHost, HostSpec
from fedsir.engines.device_settings import prepared
from fedsir.engines.flower.grid import GridEngine, Link
from fedsir.engines.flower.records import bytes_record, call_records, read_note
from fedsir.engines.flower.roster import GridError, Present, Roster, push, replies
from fedsir.engines.flower.virtual import VirtualEngine
from fedsir.engines.wire import encode
from fedsir.errors import ConfigError, FedsirError
from fedsir.methods.registry import method_class
from fedsir.methods.reply_check import Form
from fedsir.models.initial import initial_model
from fedsir.models.weights import weights_sha256
from fedsir.printable import printable
from fedsir.runs import checkpoint
from fedsir.runs.config import RunConfig
from fedsir.runs.progress import Silent
from fedsir.runs.provenance import provenance
from fedsir.runs.run_folder import RunFolder
from fedsir.runs.runner import RunTarget, default_out, run_experiment
from fedsir.simulation.simulation import Simulation, Snapshot, Step

if TYPE_CHECKING:
    from fedsir.data.federation import FederatedData
    from fedsir.models.initial import InitialModel

PATIENCE = 120.0  # seconds for a node to say who it is: its process loads torch
LOOK_EVERY = 2.0  # seconds between two looks for sites
SAYS = "fedsir: "  # begins every line that is ours in Flower's log
RESULT = "FEDSIR-RESULT "  # begins the line that a command reads back


def server_app(method: str, app_file: str) -> ServerApp:
    """Return the server's app for a method: its name, or FILE.py:CLASS beside `app_file`."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        where = method_in(Path(app_file).resolve().parent, method)
        try:
            server, config = read_app_config(context.run_config, where)
            serve(grid, server, config)
        except FedsirError as problem:
            _say(f"stopped: {problem}")
            print(RESULT + json.dumps({"error": str(problem)}), flush=True)
            raise  # on SystemExit Flower would hand on neither these lines nor that the run has failed

    return app


def serve(grid: Grid, server: ServerConfig, config: RunConfig) -> dict[str, Any]:
    """Run over the sites of a grid, or say who is there; return the result."""
    roster = Roster(grid, PATIENCE)
    present = _gather(roster, server)
    if any(found.note.get("simulated") for found in present.values()):
        result = _simulate(grid, roster, server, config, len(present))
    elif server.check:
        result = check_report(present, roster)
    else:
        result = _Deployed(grid, roster, server, config, present).run()
    print(RESULT + json.dumps(result), flush=True)
    return result


def _gather(roster: Roster, server: ServerConfig) -> dict[str, Present]:
    """Wait until enough sites are there; if that takes too long, say who is missing."""
    ends, said = time.monotonic() + server.wait, -1
    while True:
        present = roster.look()
        n_nodes = {int(found.note["n_nodes"]) for found in present.values() if "n_nodes" in found.note}
        wanted = max(n_nodes) if n_nodes else max(server.min_sites, len(server.named_sites))
        if len(present) >= wanted:
            return present
        for node, why in roster.refused.items():
            _say(f"node {node} cannot take part: {why}")
        if len(present) != said:
            said = len(present)
            _say(f"{said} of {wanted} sites are there: {', '.join(natural_order(present)) or 'nobody'}")
        if time.monotonic() >= ends:
            if server.check or len(present) >= server.min_sites:
                return present
            raise GridError(
                f"{len(present)} of at least {server.min_sites} sites came within {server.wait:g} s. Start more sites, "
                "lower min-sites, or raise wait."
            )
        time.sleep(LOOK_EVERY)


def check_report(present: dict[str, Present], roster: Roster) -> dict[str, Any]:
    """Return who is there, what each has, and what does not fit."""
    sites, problems = {}, [f"node {node}: {why}" for node, why in roster.refused.items()]
    if not present:
        problems.append("no site is connected")
    fits = {}
    for client in natural_order(present):
        note, fault = present[client].note, fault_of_note(present[client].note)
        told = ("version", "n_train", "n_held_out", "channels", "image_size", "class_names")
        sites[client] = {key: note.get(key) for key in told} | {"problem": fault}
        if fault is None:
            fits[client] = present[client]
        else:
            problems.append(f"{client}: {fault}")
    agreement = None
    try:
        agreement = agree(fits).to_json() if fits else None
    except GridError as problem:
        problems.append(str(problem))
    return {"sites": sites, "agreement": agreement, "problems": problems}


def _simulate(grid: Grid, roster: Roster, server: ServerConfig, config: RunConfig, n_nodes: int) -> dict[str, Any]:
    """Run an ordinary experiment whose clients are Flower's virtual nodes."""
    config = config.model_copy(update={"data": config.data.model_copy(update={"n_clients": n_nodes})})
    out = Path(server.run_dir) if server.run_dir else default_out(config)
    memories = out.with_name(f".{out.name}-sites")
    setup = json.dumps({"settings": config.tree(), "memories": str(memories.absolute())})

    def open_engine(spec: HostSpec) -> VirtualEngine:
        link = Link(grid, roster, run="simulation", timeout=server.timeout, setup=setup)
        return VirtualEngine(link, spec, memories.absolute())

    try:
        result = run_experiment(config, RunTarget(out, progress=_Lines(), engine=open_engine))
    finally:
        shutil.rmtree(memories, ignore_errors=True)
    return dict(result)


class _Deployed:
    """One run over real sites, from agreement to result."""

    def __init__(
        self, grid: Grid, roster: Roster, server: ServerConfig, config: RunConfig, present: dict[str, Present]
    ) -> None:
        if config.method.needs_public:
            raise ConfigError(
                f"{config.method.name} needs unlabelled images that everybody has, which real sites have not got: use "
                "another method."
            )
        self._grid, self._roster, self._server, self._config = grid, roster, server, config
        self._present = present
        self._folder = RunFolder(Path(server.run_dir) if server.run_dir else flower_home() / default_out(config))

    def run(self) -> dict[str, Any]:
        with self._folder.opened(self._config):
            finished = self._folder.result()
            if finished is not None:
                _say(f"finished earlier, nothing to do: {self._folder.path}")
                return finished
            agreement = self._agreement()
            self._roster.only(agreement.fault)
            for node, why in self._roster.refused.items():
                _say(f"node {node} cannot take part: {why}")
            return self._run(agreement, agreement.data(self._test_set(agreement)))

    def _agreement(self) -> Agreement:
        """Return what the sites agreed on when the run began; a run that goes on keeps it."""
        path = self._folder.path / "agreement.json"
        if path.exists():
            return Agreement.from_json(json.loads(path.read_text(encoding="utf-8")))
        agreement = agree(self._present, self._server.named_sites)
        self._folder.write_json("agreement.json", agreement.to_json())
        return agreement

    def _test_set(self, agreement: Agreement) -> tuple[Any, Any] | None:
        """Return the server's own test images and labels by the federation's class numbers, if it has any."""
        if not self._server.test_data:
            return None
        source = load_source(self._server.test_data, data_dir=Path(), seed=0, image_size=agreement.image_size)
        if strange := [name for name in source.class_names if name not in agreement.class_names]:
            raise ConfigError(f"test-data: class {strange[0]!r} is no class of the federation.")
        number = np.array([agreement.class_names.index(name) for name in source.class_names], np.int64)
        rows = np.concatenate([source.train_rows, source.test_rows])
        return source.images[rows], number[np.concatenate([source.train_labels, source.test_labels])]

    def _run(self, agreement: Agreement, data: FederatedData) -> dict[str, Any]:
        config, folder, server = self._config, self._folder, self._server
        method = method_class(config.method.name)(config.method)
        with prepared("cpu"):
            model = initial_model(config.model, data, seed=config.seed, data_dir=data_directory(None))
        folder.write_json("provenance.json", provenance(weights=model.source, workers=0, device="cpu", engine="flower"))
        setup = json.dumps({"settings": config.tree(), "agreement": agreement.to_json()})
        link = Link(
            self._grid,
            self._roster,
            run=config.sha256[:16],
            timeout=server.timeout,
            setup=setup,
            min_present=server.min_sites,
            wait=server.wait,
        )
        opened: list[GridEngine] = []

        def open_engine(spec: HostSpec) -> GridEngine:
            size = sum(tensor.nbytes for tensor in spec.template.state_dict().values())
            opened.append(GridEngine(link, ClientHost(spec), size))
            return opened[-1]

        begin_after = self._checkpoint(method.State, data, model)
        _say(f"{method.name} over {len(data.clients)} sites, {config.rounds} rounds, in {folder.path}")
        if begin_after is not None:
            _say(f"goes on from round {begin_after.round}")
        with Simulation(
            data,
            method,
            model,
            rounds=config.rounds,
            seed=config.seed,
            participation=config.participation,
            dropout=config.dropout,
            open_engine=open_engine,
            listeners=(_Tester(link, lambda: opened[-1], config.evaluate_every), self._record, _say_round),
            begin_after=begin_after,
            spill_folder=folder.path,
        ) as simulation:
            simulation.run()
            return self._finish(simulation)

    def _checkpoint(self, state: Any, data: FederatedData, model: InitialModel) -> Snapshot | None:
        content = self._folder.read_checkpoint()
        if content is None:
            self._folder.drop_metrics_after(-1)
            return None
        form = Form.of(model.weights, classes=data.n_classes, features=model.n_features)
        found = checkpoint.from_bytes(content, state, form, data.size_by_client, self._config.sha256)
        self._folder.drop_metrics_after(found.round)
        self._folder.drop_older_checkpoints()
        return found

    def _record(self, step: Step) -> None:
        self._folder.append_metrics(step.metrics)
        content = checkpoint.to_bytes(step.simulation.snapshot(), self._config.sha256)
        self._folder.write_checkpoint(step.round, content)

    def _finish(self, simulation: Simulation) -> dict[str, Any]:
        """Write the model, and result.json last."""
        folder, config, split = self._folder, self._config, simulation.split
        lines = folder.metrics()
        tested = [line for line in lines if line.get("accuracy") is not None]
        exported = {} if simulation.method.is_personal else simulation.exported_models()  # personal ones stay there
        if exported:
            folder.write("model.safetensors", safetensors.torch.save(exported))
        if not tested:
            raise GridError("No site could test the model: see `failures` in metrics.jsonl.")
        last = tested[-1]
        n, p = last["n_tested"], last["accuracy"]
        result = {
            "method": simulation.method.name,
            "dataset": "sites",
            "seed": config.seed,
            "rounds": config.rounds,
            "accuracy": p,
            "accuracy_half_width": min(1.0, 1.96 * (p * (1 - p) / n) ** 0.5),
            "accuracy_by_site": last["accuracy_by_site"],
            "test_accuracy": last.get("test_accuracy"),
            "clean_clients": None if split is None else list(split.clean),
            "noisy_clients": None if split is None else list(split.noisy),
            "not_assessed": None if split is None else split.not_assessed,
            "identification_accuracy": None,
            "noise_before": None,
            "noise_after": None,
            "left_out": [
                {"round": line["round"], "client": client, "reason": reason}
                for line in lines
                for client, reason in line["failures"].items()
            ],
            "class_names": list(simulation.data.class_names),
            "bytes_up": sum(line["bytes_up"] for line in lines),
            "bytes_down": sum(line["bytes_down"] for line in lines),
            "seconds": simulation.seconds,
            "model_sha256": weights_sha256(exported),
            "run_dir": str(folder.path),
        }
        folder.write_json("result.json", result)
        return result


@dataclass(frozen=True)
class _Tester:
    """Asks each site how many of the images it held out the model gets right; a listener of the loop."""

    link: Link
    engine: Callable[[], GridEngine]
    every: int

    def __call__(self, step: Step) -> None:
        simulation = step.simulation
        if step.round % self.every and step.round != simulation.rounds:
            return
        link, record = self.link, bytes_record(encode(step.state.model))
        client_of: dict[int, str] = {}
        messages = []
        for client, found in link.roster.look().items():
            order = self.engine().order(Call(client, "held_out", step.round, b""))
            messages.append(Message(call_records(order, record, encode({})), found.node, HELD_OUT))
            client_of[found.node] = client
        sent = {m.metadata.message_id: client_of[m.metadata.dst_node_id] for m in push(link.grid, messages)}
        right: dict[str, tuple[int, int]] = {}
        for reply in replies(link.grid, sent, link.timeout, link.check):
            note = {} if reply.has_error() else _counts(reply)
            if note:
                right[sent[reply.metadata.reply_to_message_id]] = (note["n_right"], note["n"])
        n = sum(total for _, total in right.values())
        order_of = simulation.data.clients
        step.metrics["accuracy_by_site"] = {k: right[k][0] / right[k][1] for k in order_of if k in right}
        if n:
            step.metrics["accuracy"], step.metrics["n_tested"] = sum(k for k, _ in right.values()) / n, n
        if len(simulation.data.test_labels) and not simulation.method.is_personal:
            is_right = simulation.test_predictions() == simulation.data.test_labels
            step.metrics["test_accuracy"] = float(is_right.mean())


def _counts(reply: Message) -> dict[str, int]:
    """Return what a site counted; nothing of a site that could not test, or that makes no sense."""
    try:
        note = read_note(reply.content)
        n_right, n = note["n_right"], note["n"]
    except (LookupError, TypeError, ValueError):
        return {}
    is_count = type(n_right) is int and type(n) is int and 0 <= n_right <= n and n > 0
    return {"n_right": n_right, "n": n} if is_count else {}


def flower_home() -> Path:
    """Return where Flower keeps its files here."""
    return Path(os.environ.get("FLWR_HOME", "~/.flwr")).expanduser()


def _say_round(step: Step) -> None:
    accuracy = step.accuracy
    tested = "" if accuracy is None else f"  accuracy {accuracy:.1%}"
    _say(f"round {step.round}{tested}  seconds {step.metrics['seconds']:.1f}")
    for client, why in step.metrics["failures"].items():
        _say(f"  left out {client}: {why}")
    if step.round == 0 and step.split is not None:
        _say(f"  noisy: {', '.join(step.split.noisy) or 'nobody'}; clean: {', '.join(step.split.clean)}")


def _say(text: str) -> None:
    print(SAYS + printable(text), flush=True)


class _Lines(Silent):
    """Rounds of a simulation, as lines in Flower's log."""

    def __call__(self, step: Step) -> None:
        _say_round(step)
