"""A label audit over sites, at the server: asks them in turn, and writes what may be shared."""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from fedsir.auditing.at_the_server import share_outcome
from fedsir.auditing.extraction import usual_side
from fedsir.auditing.federated import SMALLEST_CELL, FederatedAudit
from fedsir.auditing.folder import SITES
from fedsir.auditing.folder_writer import Origin, refuse_foreign, write_shared_folder
from fedsir.data.naming import natural_order
from fedsir.data.preprocessing import Preprocessing
from fedsir.deployment.agreement import fault_of_note
from fedsir.engines.client_host import ClientHost, HostSpec
from fedsir.engines.client_store import ClientStore
from fedsir.engines.federation import EngineFederation
from fedsir.engines.flower.grid import GridEngine, Link
from fedsir.engines.flower.roster import GridError, Present, Roster
from fedsir.errors import ConfigError
from fedsir.methods.reply_check import Form

if TYPE_CHECKING:
    from flwr.serverapp import Grid

    from fedsir.deployment.app_config import ServerConfig
    from fedsir.methods.replies import ClientId

NOBODY = np.zeros(0, np.int64)
EMPTY = Preprocessing((), (), flip=False, crop_padding=0)


def audit_sites(
    grid: Grid, roster: Roster, server: ServerConfig, present: dict[ClientId, Present], say: Callable[[str], None]
) -> dict[str, Any]:
    """Audit the labels of the sites that are there, write the server's folder, and return what it says."""
    out = Path(server.audit_out)
    refuse_foreign(out)
    sites, left_out = _taking_part(roster, server, present)
    class_names = natural_order({name for found in sites.values() for name in found.note["class_names"]})
    if len(class_names) < 2:
        raise GridError("All sites together have one class; an audit compares, so it needs two.")
    sides = [min(found.note["image_size"]) for found in sites.values()]
    setup = {
        "class_names": list(class_names),
        "features": server.audit_features,
        "image_size": server.audit_image_size or usual_side(sides),
        "download": server.audit_download,
    }
    method = FederatedAudit()
    link = Link(grid, roster, f"audit-{secrets.token_hex(4)}", server.timeout, json.dumps(setup))
    store = ClientStore({}, NOBODY, NOBODY, NOBODY, np.zeros((0, 1, 1, 1), np.uint8), len(class_names), EMPTY)
    host = ClientHost(HostSpec(method, nn.Identity(), 0, "cpu", store))
    fed = EngineFederation(
        GridEngine(link, host, 0),
        tuple(sites),
        method,
        seed=0,
        participation=1.0,
        dropout=0.0,
        form=Form.of({}, classes=len(class_names)),
        on_answer=lambda step: say(f"{step.task}: {step.n_done} of {step.n_asked} sites answered"),
    )
    say(f"audit over {len(sites)} sites ({', '.join(sites)}), features {server.audit_features}, in {out}")
    min_cell = max(server.audit_min_cell, SMALLEST_CELL)
    outcome = method.hold(fed, min_cell=min_cell, min_class_samples=server.audit_min_class_samples)
    n_samples = {k: found.note["n_train"] + found.note["n_held_out"] for k, found in sites.items()}
    shared = share_outcome(outcome, class_names, min_cell, n_samples, left_out)
    origin = Origin(None, SITES, server.audit_features, details={"image_size": setup["image_size"]})
    write_shared_folder(shared, out, origin)
    for client, why in shared.summary["left_out"].items():
        say(f"left out {client}: {why}")
    return {
        "audit": str(out),
        **{key: shared.summary[key] for key in ("headline", "samples", "suspicious", "suspicious_hidden", "left_out")},
        "clients": [{name: _json(value) for name, value in row.items()} for row in shared.clients],
        "features": {"name": server.audit_features, "dimension": shared.n_features, "image_size": setup["image_size"]},
        "note": shared.note,
        "bytes_up": sum(fed.log.bytes_up.values()),
        "bytes_down": sum(fed.log.bytes_down.values()),
    }


def _taking_part(
    roster: Roster, server: ServerConfig, present: dict[ClientId, Present]
) -> tuple[dict[ClientId, Present], dict[str, str]]:
    """Return the sites that can be audited, in natural order, and why others are left out."""
    if any(found.note.get("simulated") for found in present.values()):
        raise ConfigError(
            "these nodes are simulated, and an audit over Flower is one of real sites; `fedsir audit DATA` audits data "
            "of one machine."
        )
    named, sites, left_out = server.named_sites, {}, roster.refusals()
    for client in natural_order(present):
        if named and client not in named:
            left_out[client] = "`sites` does not name it"
        elif (fault := fault_of_note(present[client].note)) is not None:
            left_out[client] = fault
        else:
            sites[client] = present[client]
    if len(sites) < 2:
        there = f"only {next(iter(sites))} is there" if sites else "no site is there"
        reasons = "".join(f"; {who} was left out: {why}" for who, why in left_out.items())
        raise GridError(f"An audit compares sites, so it needs two: {there}{reasons}.")
    return sites, left_out


def _json(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value
