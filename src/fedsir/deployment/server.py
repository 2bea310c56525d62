"""The server's side: waits for sites, agrees with them, runs our loop over them, and writes down who did what."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors.torch
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedsir.data.directory import data_directory
from fedsir.data.naming import natural_order
from fedsir.data.source import load_source
from fedsir.deployment.agreement import Agreement, agree, fault_of_note
from fedsir.deployment.app_config import ServerConfig, method_in, read_app_config
from fedsir.deployment.audit_server import audit_sites
from fedsir.deployment.held_out import HeldOutTest
from fedsir.deployment.public_images import check_public, public_images, public_sha256
from fedsir.engines.client_host import ClientHost, HostSpec
from fedsir.engines.device_settings import prepared
from fedsir.engines.flower.grid import GridEngine, Link
from fedsir.engines.flower.roster import GridError, Present, Roster
from fedsir.engines.flower.site_memory import write_whole
from fedsir.engines.flower.virtual import VirtualEngine
from fedsir.errors import ConfigError, FedsirError
from fedsir.methods import method_file
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
        where = lasting(method_in(Path(app_file).resolve().parent, method))
        try:
            server, config = read_app_config(context.run_config, where)
            serve(grid, server, config)
        except FedsirError as problem:
            _say(f"stopped: {problem}")
            print(RESULT + json.dumps({"error": str(problem)}), flush=True)
            # On SystemExit Flower would hand on neither these lines nor that the run has failed.
            raise problem.with_traceback(None) from None

    return app


def lasting(method: str) -> str:
    """Return where a method's code will be the next time, too, for a run that goes on must name the same file.

    Flower unpacks an app into a folder of another name once anything in the app has changed.
    """
    if not method_file.is_in_file(method):
        return method
    file = Path(method.rpartition(":")[0])
    code = file.read_bytes()
    copy = flower_home().absolute() / "fedsir-methods" / hashlib.sha256(code).hexdigest()[:16] / file.name
    if not copy.exists():
        write_whole(copy, code)
    return f"{copy}:{method_file.class_name(method)}"


def serve(grid: Grid, server: ServerConfig, config: RunConfig) -> dict[str, Any]:
    """Run over the sites of a grid, audit their labels, or say who is there; return the result."""
    roster = Roster(grid, PATIENCE)
    present = _gather(roster, server)
    if server.audit_out:
        result = audit_sites(grid, roster, server, present, _say)
    elif any(found.note.get("simulated") for found in present.values()):
        result = _simulate(grid, roster, server, config, len(present))
    elif server.check:
        result = check_report(present, roster)
    else:
        result = _Deployed(grid, roster, server, config, present).run()
    print(RESULT + json.dumps(result), flush=True)
    return result


def _gather(roster: Roster, server: ServerConfig) -> dict[str, Present]:
    """Wait until enough sites are there; if that takes too long, say who is missing."""
    ends, said, said_of = time.monotonic() + server.wait, -1, set[int]()
    while True:
        present, named = roster.look(), server.named_sites
        there = [client for client in natural_order(present) if not named or client in named]
        n_nodes = {int(found.note["n_nodes"]) for found in present.values() if "n_nodes" in found.note}
        wanted = max(n_nodes) if n_nodes else max(server.min_sites, len(named))
        if len(there) >= wanted or (n_nodes and len(present) >= wanted):
            return present
        for node in roster.refused.keys() - said_of:
            said_of.add(node)
            _say(f"node {node} cannot take part: {roster.refused[node]}")
        if len(there) != said:
            said = len(there)
            _say(f"{said} of {wanted} sites are there: {', '.join(there) or 'nobody'}")
        if time.monotonic() >= ends:
            if server.check or len(there) >= server.min_sites:
                return present
            raise GridError(
                f"{len(there)} of at least {server.min_sites} sites came within {server.wait:g} s. Start more sites, "
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
        allowed = server.max_reply_bytes
        link = Link(grid, roster, run="simulation", timeout=server.timeout, setup=setup, max_reply=allowed)
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
        check_public(config)
        self._grid, self._roster, self._server, self._config = grid, roster, server, config
        self._present = present
        self._refusals: dict[str, str] = {}  # those in metrics.jsonl
        self._folder = RunFolder(Path(server.run_dir) if server.run_dir else flower_home() / default_out(config))

    def run(self) -> dict[str, Any]:
        with self._folder.opened(self._config):
            finished = self._folder.result()
            if finished is not None:
                _say(f"finished earlier, nothing to do: {self._folder.path}")
                return finished
            agreement = self._agreement()
            self._roster.only(agreement.fault)
            public = None
            if self._config.method.needs_public and self._config.data.public:
                public = public_images(self._config, self._config.data.public, agreement)
            return self._run(agreement, agreement.data(self._test_set(agreement), public))

    def _agreement(self) -> Agreement:
        """Return what the sites agreed on when the run began; a run that goes on keeps it."""
        path = self._folder.path / "agreement.json"
        if path.exists():
            return Agreement.from_json(json.loads(path.read_text(encoding="utf-8")))
        named = self._server.named_sites
        agreement = agree({k: found for k, found in self._present.items() if not named or k in named}, named)
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
        public = None if data.public_images is None else public_sha256(data.public_images)
        setup = json.dumps({"settings": config.tree(), "agreement": agreement.to_json(), "public_sha256": public})
        link = Link(
            self._grid,
            self._roster,
            run=config.sha256[:16],
            timeout=server.timeout,
            setup=setup,
            min_present=server.min_sites,
            wait=server.wait,
            max_reply=server.max_reply_bytes,
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
            listeners=(HeldOutTest(link, lambda: opened[-1], config.evaluate_every), self._record, _say_round),
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
        refusals = self._roster.refusals()
        new = {who: why for who, why in refusals.items() if self._refusals.get(who) != why}
        if new:
            step.metrics["refused"], self._refusals = new, refusals
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
                for client, reason in [*line["failures"].items(), *line.get("refused", {}).items()]
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


def flower_home() -> Path:
    """Return where Flower keeps its files here."""
    return Path(os.environ.get("FLWR_HOME", "~/.flwr")).expanduser()


def _say_round(step: Step) -> None:
    accuracy = step.accuracy
    tested = "" if accuracy is None else f"  accuracy {accuracy:.1%}"
    _say(f"round {step.round}{tested}  seconds {step.metrics['seconds']:.1f}")
    for client, why in step.metrics["failures"].items():
        _say(f"  left out {client}: {why}")
    for client, why in step.metrics.get("refused", {}).items():
        _say(f"  refused {client}: {why}")
    if step.round == 0 and step.split is not None:
        _say(f"  noisy: {', '.join(step.split.noisy) or 'nobody'}; clean: {', '.join(step.split.clean)}")


def _say(text: str) -> None:
    print(SAYS + printable(text), flush=True)


class _Lines(Silent):
    """Rounds of a simulation, as lines in Flower's log."""

    def __call__(self, step: Step) -> None:
        _say_round(step)
