"""A site's side: finds its data, answers the server, tests on what it held out, writes repaired labels to its disk."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import Context, Message

from fedsir.auditing.federated import FederatedAudit
from fedsir.data.dealing import load_federation
from fedsir.deployment.agreement import Agreement
from fedsir.deployment.app_config import method_in
from fedsir.deployment.audit_site import AuditSites, site_folder
from fedsir.deployment.public_images import public_images, public_sha256
from fedsir.deployment.site_data import SiteConfig, SiteData, load_site_data, read_site
from fedsir.engines import device_settings
from fedsir.engines.base import PredictCall
from fedsir.engines.client_host import ClientHost, HostSpec
from fedsir.engines.client_store import ClientStore
from fedsir.engines.flower.client import Site, answering, client_app
from fedsir.engines.flower.records import Order, note_records, read_call
from fedsir.engines.flower.site_memory import NOTHING, SiteError, SiteMemory, file_name, write_whole
from fedsir.engines.wire import decode, encode
from fedsir.errors import FedsirError
from fedsir.methods.own_code import said
from fedsir.methods.registry import method_class
from fedsir.models.build import build_model, training_model
from fedsir.randomness import KeyedRandom
from fedsir.runs.changed_labels import changed_labels
from fedsir.runs.config import parse_config
from fedsir.simulation.evaluation import score_of

if TYPE_CHECKING:
    from flwr.clientapp import ClientApp
    from torch import nn

    from fedsir.data.arrays import Images
    from fedsir.runs.config import RunConfig

HELD_OUT = "evaluate.held_out"


def site_app(method: str, app_file: str) -> ClientApp:
    """Return a site's app for a method: its name, or FILE.py:CLASS beside `app_file`."""
    where = method_in(Path(app_file).resolve().parent, method)
    sites = Sites(where)
    app = client_app(method_class(where).tasks(), sites)
    app.evaluate("held_out")(sites.test)
    handle = answering(AuditSites())
    for task in FederatedAudit.tasks():
        app.train(task)(handle)
    return app


@dataclass(frozen=True)
class Sites:
    """Opens the site that a node's config names, or one of a simulation's."""

    method: str

    def client(self, context: Context) -> str:
        if (folder := site_folder(context)) is None:
            return str(_partition(context))
        return read_site(folder / "site.toml").client_id

    def describe(self, context: Context) -> dict[str, Any]:
        if (folder := site_folder(context)) is None:
            return {"simulated": True, "n_nodes": int(context.node_config["num-partitions"])}
        return load_site_data(read_site(folder / "site.toml"), folder).describe()

    def open(self, order: Order, context: Context) -> Site:
        setup = _setup(order.setup, self.method)
        device_settings.prepare("cpu")
        if (folder := site_folder(context)) is None:
            memory = SiteMemory(Path(setup["memories"]), order.run, self.client(context), data_sha256="")
            return Site(_simulated_host(order.setup, self.method), memory)
        return _RealSite(folder, setup, order).site()

    def test(self, message: Message, context: Context) -> Message:
        """Answer how many held-out images the model gets right; with a model of its own, that one."""
        try:
            order, common, _ = read_call(message.content)
            if (folder := site_folder(context)) is None:
                raise SiteError("a simulated site holds nothing out: the server has the test set")
            note = _RealSite(folder, _setup(order.setup, self.method), order).test(common)
        except FedsirError as problem:
            note = {"problem": str(problem)}
        except Exception as problem:
            note = {"problem": said(problem)}
        return Message(note_records(note), reply_to=message)


class _RealSite:
    """A site with data of its own, in a run whose server has said what all agree on."""

    def __init__(self, folder: Path, setup: dict[str, Any], order: Order) -> None:
        self._folder, self._order = folder, order
        self._config: RunConfig = setup["config"]
        self._site: SiteConfig = read_site(folder / "site.toml")
        self._data: SiteData = load_site_data(self._site, folder)
        self._agreed = Agreement.from_json(setup["agreement"])
        self._public_sha256: str | None = setup["public_sha256"]
        self.memory = SiteMemory(folder / "memory", order.run, self._site.client_id, self._data.sha256)
        self._check_data()
        self._labels = self._numbered()

    def _check_data(self) -> None:
        """Refuse data that are not those the site began the run with: what it learnt would not fit them."""
        path = self.memory.folder / "data_sha256"
        if not path.exists():
            write_whole(path, self._data.sha256.encode())
        elif path.read_text() != self._data.sha256:
            raise SiteError("its data have changed since the run began: restore them, or begin another run")

    def _numbered(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return this site's labels by number in the federation's classes, which go by name."""
        names = self._agreed.class_names
        if strange := [name for name in self._data.class_names if name not in names]:
            raise SiteError(f"it has class {strange[0]!r}, which the federation does not")
        number = np.array([names.index(name) for name in self._data.class_names], np.int64)
        numbered: np.ndarray[Any, np.dtype[np.int64]] = number[self._data.labels]
        return numbered

    def site(self) -> Site:
        return Site(self._host(), _WritesLabels(self.memory, self._folder, self._data, self._labels, self._agreed))

    def test(self, model: bytes) -> dict[str, Any]:
        own = decode(self.memory.read(self._order.base)).get("model")
        host, is_held_out = self._host(), self._data.is_held_out
        n = int(is_held_out.sum())
        answer = host.answer(PredictCall(0, n), model if own is None else encode(own), NOTHING)
        if answer.reply is None:
            raise SiteError(answer.failure or "it could not test")
        is_right = decode(answer.reply)["predicted"].numpy() == self._labels[is_held_out]
        return {"n_right": int(is_right.sum()), "n": n}

    def _public(self) -> Images | None:
        """Return this site's copy of the images that everybody has, where the method needs them."""
        if not self._config.method.needs_public:
            return None
        if not self._site.public:
            raise SiteError(
                f"it has no copy of the public images, which {self._config.method.name} needs: "
                "`fedsir flower site --public` names one"
            )
        images = public_images(self._config, self._site.public, self._agreed)
        if public_sha256(images) != self._public_sha256:
            raise SiteError("its public images are not the server's: copy those of the server")
        return images

    def _host(self) -> ClientHost:
        agreed, data, config = self._agreed, self._data, self._config
        rows, held_out = np.flatnonzero(~data.is_held_out), np.flatnonzero(data.is_held_out)
        store = ClientStore(
            rows_by_client={self._site.client_id: (0, len(rows))},
            labels=self._labels[rows],
            image_rows=rows,
            test_rows=held_out,
            images=data.images,
            n_classes=len(agreed.class_names),
            preprocessing=agreed.preprocessing,
            public_images=self._public(),
        )
        method = method_class(config.method.name)(config.method).resolved(config.rounds)
        template = architecture(config, len(agreed.class_names), agreed.channels, agreed.image_size)
        return ClientHost(HostSpec(method, template, config.seed, "cpu", store))


@dataclass(frozen=True)
class _WritesLabels(SiteMemory):
    """A memory that also writes corrected labels where the site's people find them: labels-RUN.csv."""

    folder_of_site: Path
    data: SiteData
    labels: Any
    agreed: Agreement

    def __init__(self, memory: SiteMemory, folder: Path, data: SiteData, labels: Any, agreed: Agreement) -> None:
        values = {**vars(memory), "folder_of_site": folder, "data": data, "labels": labels, "agreed": agreed}
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def write(self, version: str, state: bytes) -> str:
        written = super().write(version, state)
        remembered = decode(state)
        corrected = remembered.get("corrected_labels")
        if corrected is not None:
            given = self.labels[~self.data.is_held_out]
            listed = changed_labels(
                self.data.names,
                given,
                corrected.numpy(),
                self.agreed.class_names,
                scores=score_of(remembered, given),
            )
            write_whole(self.folder_of_site / f"labels-{file_name(self.run)}.csv", listed)
        return written


def architecture(config: RunConfig, n_classes: int, channels: int, image_size: tuple[int, int]) -> nn.Module:
    """Return a model of the run's architecture, as clients train it; its weights do not matter."""
    random = KeyedRandom(0, ("architecture",))
    stock = build_model(config.model, n_classes=n_classes, in_channels=channels, random=random, image_size=image_size)
    return training_model(stock, config.model.name, image_size)


@lru_cache(maxsize=4)
def _setup(text: str, method: str) -> dict[str, Any]:
    """Return what the server has said about the run; the method's code is this app's own, and must be the same."""
    setup: dict[str, Any] = json.loads(text)
    tree = setup["settings"]
    setup["config"] = parse_config({**tree, "method": {**tree["method"], "name": method}})
    return setup


@lru_cache(maxsize=1)
def _simulated_host(text: str, method: str) -> ClientHost:
    """Return a host for every client of a simulated federation; a process keeps it."""
    config: RunConfig = _setup(text, method)["config"]
    data = load_federation(config.data, seed=config.seed)
    template = architecture(config, data.n_classes, data.channels, data.image_size)
    chosen = method_class(config.method.name)(config.method).resolved(config.rounds)
    return ClientHost(HostSpec(chosen, template, config.seed, "cpu", ClientStore.of(data)))


def _partition(context: Context) -> int:
    return int(context.node_config["partition-id"])
