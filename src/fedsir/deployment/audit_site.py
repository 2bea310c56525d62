"""A label audit at a site: features of its own samples, and a list of suspicious labels on its own disk."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.app import Context
from torch import nn

from fedsir.auditing.at_the_site import SiteSamples, site_samples
from fedsir.auditing.federated import FederatedAudit
from fedsir.auditing.folder_writer import refuse_foreign
from fedsir.deployment.site_data import read_site
from fedsir.engines import device_settings
from fedsir.engines.client_host import ClientHost, HostSpec
from fedsir.engines.flower.client import Site
from fedsir.engines.flower.records import Order
from fedsir.engines.flower.site_memory import SiteError, SiteMemory
from fedsir.engines.wire import decode

FOLDER = "audit"  # in the site's folder


def site_folder(context: Context) -> Path | None:
    """Return the folder of the site that a node's config names, None for a simulated node."""
    found = context.node_config.get("site")
    if isinstance(found, str):
        return Path(found)
    if "partition-id" not in context.node_config:
        raise SiteError("its node config names no site: start it as `fedsir flower site` says")
    return None


class AuditSites:
    """Opens the site that a node's config names, with features in place of its images."""

    def client(self, context: Context) -> str:
        return read_site(_folder(context) / "site.toml").client_id

    def describe(self, context: Context) -> dict[str, Any]:
        del context
        return {}  # `whoami` is answered for training and audits alike, by `deployment.site`

    def open(self, order: Order, context: Context) -> Site:
        folder, setup = _folder(context), json.loads(order.setup)
        refuse_foreign(folder / FOLDER)  # before a network has looked at every image
        device_settings.prepare("cpu")
        site = read_site(folder / "site.toml")
        samples = site_samples(
            Path(site.data),
            site.client_id,
            setup["class_names"],
            setup["features"],
            setup["image_size"],
            download=setup["download"],
        )
        method = FederatedAudit(network=samples.found.network)
        host = ClientHost(HostSpec(method, nn.Identity(), 0, "cpu", samples.store()))
        return Site(host, _WritesAudit(folder, order.run, site.client_id, "", samples))


@dataclass(frozen=True)
class _WritesAudit(SiteMemory):
    """Nothing is remembered from message to message; what the last one found becomes the site's audit folder."""

    samples: SiteSamples

    def write(self, version: str, state: bytes) -> str:
        del version
        found = decode(state).get("audit")
        if found is not None:
            self.samples.write(found, self.root / FOLDER)
        return ""


def _folder(context: Context) -> Path:
    if (folder := site_folder(context)) is None:
        raise SiteError("it is simulated: an audit over Flower is one of real sites")
    return folder
