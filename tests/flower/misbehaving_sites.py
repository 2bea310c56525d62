"""Methods whose clients misbehave when a folder says so. They go into an app, so that real sites run them.

A test writes FOLDER into the file. In FOLDER, `plan.json` says who does what in which round: {"2": ["ashford", "nan"]}.
A client that does something leaves a file `CLIENT-ROUND-WHAT` there; `held` and `slow` go on once `go-ROUND` is there.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fedsir.engines.flower import client as flower_client
from fedsir.methods.averaging import average_by_samples, mean_loss
from fedsir.methods.base import Client, Federation, ServerState, client_task
from fedsir.methods.fedavg import FedAvg
from fedsir.methods.fedsir import FedSIR, Repaired, Taught
from fedsir.methods.local_training import class_features_of
from fedsir.methods.replies import STAYS, Weights
from fedsir.stages.relabel import extract_spectra

if TYPE_CHECKING:
    from torch import Tensor

FOLDER = Path("FOLDER")
A_GIGABYTE = 2**30


@dataclass(frozen=True)
class Silent(Taught):
    """Does not say how many samples there were."""

    n_samples: int | None = field(default=None, metadata={STAYS: True})  # type: ignore[assignment]
    loss: float | None = 1.0


def wait_for_go(client: Client, t: int, what: str) -> None:
    (FOLDER / f"{client.id}-{t}-{what}").touch()
    if what in ("held", "slow"):
        ends = time.monotonic() + 600
        while not (FOLDER / f"go-{t}").exists() and time.monotonic() < ends:
            time.sleep(0.1)


def planned(client: Client, t: int) -> str | None:
    who, what = json.loads((FOLDER / "plan.json").read_text()).get(str(t), (None, None))
    return what if who == client.id else None


class Naughty(FedAvg):
    name = "naughty"

    def round(self, t: int, state: ServerState, fed: Federation) -> ServerState:
        replies = fed.ask(self.train, fed.participants, model=state.model, t=t)
        fed.record(loss=mean_loss(replies))
        return ServerState(model=average_by_samples(replies) if replies else state.model)

    @client_task
    def train(self, client: Client, model: Weights, t: int) -> Taught:  # type: ignore[override]
        """Train on the given labels, then answer something else if the plan says so; asked in every round."""
        found = super().train(client, model)
        client.state["t"] = torch.tensor(t)  # so that there is something to remember
        reply = Taught(found.model, found.n_samples, found.loss)
        what = planned(client, t)
        if what is None:
            return reply
        wait_for_go(client, t, what)
        name = next(iter(reply.model))
        if what == "nan":
            reply.model[name].view(-1)[0] = float("nan")
        elif what == "shape":
            reply.model[name] = reply.model[name].unsqueeze(0)
        elif what == "missing":
            return Silent(reply.model, spectra=None)
        elif what == "not_unit":
            spectra = extract_spectra(class_features_of(client, client.module(model)), 2, "after_direction")
            return replace(reply, spectra=replace(spectra, directions=3 * spectra.directions))
        elif what == "gigabyte":
            # A site that does not keep to what the server takes. Flower stores equal pieces once; a gigabyte of
            # distinct bytes would make its SuperLink answer the other sites with an error, and end them.
            flower_client.check_size = lambda order, reply: None
            reply.model["more"] = torch.zeros(A_GIGABYTE // 8, dtype=torch.int64)
        elif what == "distinct_gigabyte":
            reply.model["more"] = torch.randint(2**62, (A_GIGABYTE // 8,))
        elif what == "other_data":
            path = FOLDER / f"{client.id}.npz"
            with np.load(path) as data:
                arrays = dict(data)
            np.savez(path, **{**arrays, "labels": np.roll(arrays["labels"], 1)})
        return reply


class Held(FedSIR):
    """FedSIR whose noisy clients wait before they train, in rounds that the plan names."""

    name = "held"

    @client_task
    def train_noisy(
        self,
        client: Client,
        model: Weights,
        kd_weight: float,
        references: dict[str, Tensor] | None,
        clean_reference: Weights | None,
    ) -> Repaired:
        """Wait, then do as FedSIR does; asked of the noisy participants of every round."""
        t = int(client.state.get("t", torch.tensor(0))) + 1
        client.state["t"] = torch.tensor(t)
        if (what := planned(client, t)) is not None:
            wait_for_go(client, t, what)
        return super().train_noisy(client, model, kd_weight, references, clean_reference)


def write_method(folder: Path, plan: dict[int, tuple[str, str]]) -> Path:
    """Write this file with the folder's name in it, and the plan beside it; return the file."""
    (folder / "plan.json").write_text(json.dumps(plan))
    file = folder / "misbehaving_sites.py"
    text: Any = Path(__file__).read_text(encoding="utf-8")
    file.write_text(text.replace('Path("FOLDER")', f'Path("{folder}")', 1), encoding="utf-8")
    return file
