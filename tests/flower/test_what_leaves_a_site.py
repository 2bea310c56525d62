"""Settings that keep more with a site, judged by what lies in its messages."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, Message
from three_on_a_grid import NOISY, SETTINGS, WORDS, Federation

from fedsir.data.source import Source
from fedsir.engines.flower.records import read_answer, read_call
from fedsir.engines.wire import decode

IDENTIFY = SETTINGS["method"]["identify"]
PLUS: dict[str, Any] = {
    "preset": "plus",
    "relabel": {"every": 1},
    "identify": {**IDENTIFY, "split": "rates"},
}


class Listening(Federation):
    """Three sites whose answers are read on their way."""

    def __init__(self, folder: Path, digits: Source, **method: Any) -> None:
        super().__init__(folder, digits, **method)
        self.heard: list[tuple[str, str, dict[str, Any]]] = []  # client, task, reply
        self.grid.answer = self._listen

    def _listen(self, message: Message, context: Context) -> Message:
        answer = self.app(message, context)
        if message.metadata.message_type.startswith("train."):
            order, reply = read_call(message.content)[0], read_answer(answer.content).reply
            assert reply is not None
            self.heard.append((order.client, order.task, decode(reply)))
        return answer

    def by(self, task: str) -> Iterator[tuple[str, dict[str, Any]]]:
        return ((client, reply) for client, asked, reply in self.heard if asked == task)


def test_what_nobody_computes_with_does_not_leave(sites: Federation, digits: Source) -> None:
    everything = sites.serve()
    least = Listening(sites.folder.with_name("least"), digits, share="minimal")
    result = least.serve()
    assert result["model_sha256"] == everything["model_sha256"]
    assert result["noisy_clients"] == [NOISY]
    assert result["bytes_up"] < everything["bytes_up"] - 60_000  # the model that the noisy site trained in Stage I
    assert all(reply.get("loss") is None for _, _, reply in least.heard)
    stage_one = list(least.by("identify"))
    assert len(stage_one) == 3
    assert all(reply["model"] is None and reply["mean"] > 0 for _, reply in stage_one)
    assert sorted(client for client, _ in least.by("hand_over")) == ["hill", "lake"]
    repaired = [reply for _, reply in least.by("train_noisy")]
    assert repaired
    assert all(reply["n_corrected"] is None and reply["n_undecided"] is None for reply in repaired)
    assert not any("first_model" in path.read_bytes().decode("latin-1") for path in least.folder.rglob("*.safetensors"))


@pytest.mark.parametrize("method", [{}, pytest.param(PLUS, marks=pytest.mark.slow)], ids=["spectra", "sums"])
def test_a_class_with_few_samples_does_not_leave(tmp_path: Path, digits: Source, method: dict[str, Any]) -> None:
    """A site has three sevens, and no other site any."""
    found = Listening(tmp_path / "sites", digits, **method, min_class_samples=4)
    found.grid.nodes.clear()
    for k, name in enumerate(("hill", NOISY, "lake")):
        rows = [i for i in range(150 * k, 150 * k + 150) if digits.train_labels[i] != 7]
        if name == "hill":
            rows += [i for i in range(500, 600) if digits.train_labels[i] == 7][:4]  # one of them is held out
        found.add(name, rows)
    found.serve()
    seven, n_seen = sorted(WORDS).index("seven"), 0
    for client, _, reply in found.heard:
        told = reply.get("spectra") or reply.get("moments")
        if client == "hill" and told is not None:
            n_seen += 1
            assert (told["counts"] > 0).sum() > 5
            for name in {"counts", "directions", "residuals", "gaps", "sums"} & told.keys():
                assert told[name].any() and not told[name][seven].any(), name
    assert n_seen
