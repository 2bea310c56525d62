"""`fedsir flower audit` over a grid without a network: it says what `fedsir audit` says, and no sample leaves."""

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message
from PIL import Image
from three_on_a_grid import NOISY, SETTINGS, WORDS
from torch import Tensor
from typer.testing import CliRunner

from fedsir.auditing.apply import apply_audit
from fedsir.auditing.condition import parse_condition
from fedsir.auditing.export import export_audit
from fedsir.auditing.folder import AuditFolder, AuditFolderError
from fedsir.auditing.from_files import audit_files
from fedsir.auditing.report import write_report
from fedsir.auditing.review.session import Review
from fedsir.cli.app import app as command
from fedsir.data.source import Source
from fedsir.deployment import server as server_module
from fedsir.deployment.app_config import ServerConfig
from fedsir.deployment.server import serve
from fedsir.deployment.site import site_app
from fedsir.deployment.site_folder import write_site
from fedsir.engines.flower.records import answer_records, read_answer, read_call
from fedsir.engines.wire import decode, encode
from fedsir.runs.config import parse_config
from loopback_grid import LoopbackGrid

SIZES = {"hill": 421, NOISY: 397, "lake": 443}
OWN = "own_extractor:Pixels"
RATES = ("noise_rate", "noise_rate_low", "noise_rate_high", "probability_noisy")


class Audited:
    """Three sites with digits; 40 % of the labels of one are wrong. Whatever leaves a site is heard."""

    def __init__(self, folder: Path, digits: Source) -> None:
        self.folder, self.app = folder, site_app("fedsir", __file__)
        folder.mkdir()
        self.grid = LoopbackGrid(self.app, 0, self.listen)
        self.heard: list[tuple[str, str, Any]] = []  # client, task, reply
        self.wrong: dict[tuple[str, str], Callable[[dict[str, Any]], Any]] = {}  # client and task → a changed reply
        rng, start = np.random.default_rng(0), 0
        self.arrays: dict[str, dict[str, np.ndarray]] = {}
        for name, n in SIZES.items():
            rows = slice(start, start + n)
            images, labels = digits.images[digits.train_rows[rows]][:, 0], digits.train_labels[rows].copy()
            if name == NOISY:
                is_wrong = rng.random(n) < 0.4
                labels[is_wrong] = (labels[is_wrong] + rng.integers(1, 10, is_wrong.sum())) % 10
            self.arrays[name] = {
                "images": images,
                "labels": WORDS[labels],
                "features": images.reshape(n, -1).astype(np.float32) / 16,
            }
            start += n

    def start(self, **data: Path) -> None:
        """Write and start sites: with the data named, or else with an npz file of their own."""
        for name in SIZES:
            if name not in data:
                data[name] = self.folder / f"{name}.npz"
                np.savez(data[name], **self.arrays[name])  # type: ignore[arg-type]
            site = self.folder / name
            write_site(site, name, data[name], superlink="localhost:1", ca=None)
            self.grid.nodes[len(self.grid.nodes) + 1] = {"site": str(site)}

    def listen(self, message: Message, context: Context) -> Message:
        answer = self.app(message, context)
        if not message.metadata.message_type.startswith("train."):
            return answer
        order, found = read_call(message.content)[0], read_answer(answer.content)
        if found.reply is None:
            return answer
        reply = decode(found.reply)
        self.heard.append((order.client, order.task, reply))
        if (order.client, order.task) in self.wrong:
            changed = encode(self.wrong[order.client, order.task](reply))
            return Message(answer_records(type(found)(changed, b"", 0.0)), reply_to=message)
        return answer

    def audit(self, **settings: Any) -> dict[str, Any]:
        server: dict[str, Any] = {"audit_out": str(self.out), "wait": 0.1, "timeout": 5.0, "audit_features": "given"}
        return serve(self.grid, ServerConfig(**server | settings), parse_config(SETTINGS))

    @property
    def out(self) -> Path:
        return self.folder / "audit"

    def pooled(self) -> Path:
        """Write what nobody has in truth: all samples in one file."""
        arrays = {key: np.concatenate([self.arrays[k][key] for k in SIZES]) for key in ("labels", "features")}
        path = self.folder / "pooled.npz"
        np.savez(path, clients=np.repeat(list(SIZES), list(SIZES.values())), **arrays)  # type: ignore[arg-type]
        return path


@pytest.fixture
def federation(tmp_path: Path, digits: Source, monkeypatch: pytest.MonkeyPatch) -> Audited:
    monkeypatch.setenv("FEDSIR_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(server_module, "LOOK_EVERY", 0.01)
    return Audited(tmp_path / "federation", digits)


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.open(encoding="utf-8", newline="")))


def test_the_same_verdicts_rates_and_lists_as_with_all_samples_in_one_place(federation: Audited) -> None:
    federation.start()
    result = federation.audit()
    audit_files(federation.pooled(), federation.folder / "expected")
    expected, found = AuditFolder(federation.folder / "expected"), AuditFolder(federation.out)
    assert "1 of 3 clients looks noisy (mill)" in result["headline"]
    assert found.summary == {**expected.summary, "left_out": {}}
    for ours, theirs in zip(found.clients(), expected.clients(), strict=True):
        assert {k: v for k, v in ours.items() if k not in RATES} == {k: v for k, v in theirs.items() if k not in RATES}
        assert [float(ours[k]) for k in RATES] == pytest.approx([float(theirs[k]) for k in RATES], abs=2e-3)
    assert {tuple(row.values()) for row in found.confusion()} == {tuple(row.values()) for row in expected.confusion()}
    first = 0
    for name, n in SIZES.items():
        site = AuditFolder(federation.folder / name / "audit")
        own = {row["id"]: row for row in rows_of(site.client_folder(name) / "samples.csv")}
        for theirs in rows_of(expected.client_folder(name) / "samples.csv"):
            ours = own[str(int(theirs["id"]) - first)]
            assert all(ours[key] == theirs[key] for key in ("given_label", "suggested_label", "is_label_issue"))
            assert float(ours["score"]) == pytest.approx(float(theirs["score"]), abs=5e-3)
        first += n


def test_from_images_each_site_gets_a_folder_to_work_with(federation: Audited) -> None:
    """A folder, and two npz files: the site's own folder is that of `fedsir audit`, with thumbnails."""
    root = federation.folder / "images"
    for row, (image, label) in enumerate(
        zip(*(federation.arrays["lake"][k] for k in ("images", "labels")), strict=True)
    ):
        path = root / "lake" / label / f"{row:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    federation.start(lake=root)
    result = federation.audit(audit_features=OWN)
    assert result["features"] == {"name": OWN, "dimension": 64, "image_size": 32}
    for name in SIZES:
        folder = AuditFolder(federation.folder / name / "audit")
        own = folder.client_folder(name)
        assert len(rows_of(own / "samples.csv")) == SIZES[name]
        review = Review(folder)
        assert ("data:image/" in (own / "report.html").read_text()) == (len(review.samples) > 0)
        assert all(min(review.images.picture(place, 64).size) == 8 for place in range(len(review.samples)))
        done = apply_audit(folder, parse_condition("score<0.5"))
        assert done.n_samples == SIZES[name] and done.n_changed <= len(review.samples)
        exported = export_audit(folder, "cleanlab")
        assert sum(len(path.read_text().splitlines()) - 1 for path in exported) == SIZES[name]
    assert done.n_changed < 20 < len(rows_of(federation.folder / NOISY / "audit/clients" / NOISY / "undo.csv"))
    paths = {row["path"] for row in rows_of(federation.folder / "lake/audit/clients/lake/samples.csv")}
    assert paths == {str(path.relative_to(root)) for path in root.rglob("*.png")}
    page = (federation.out / "report.html").read_text()
    assert "fedsir audit review SITE/audit" in page and "data:image/" not in page


def test_the_servers_folder_has_no_sample(federation: Audited) -> None:
    federation.start()
    federation.audit()
    names = {path.relative_to(federation.out).as_posix() for path in federation.out.rglob("*") if path.is_file()}
    assert names == {".fedsir-audit", "audit.json", "clients.csv", "confusion.csv", "report.html", "summary.json"}
    assert write_report(federation.out) == federation.out / "report.html"
    with pytest.raises(AuditFolderError, match="samples are at the sites"):
        Review(AuditFolder(federation.out))
    assert federation.audit()["headline"]  # a second audit goes into the same folders


def arrays_in(node: Any) -> Iterator[Tensor | list[Any]]:
    if isinstance(node, Tensor):
        yield node
    elif isinstance(node, dict):
        for child in node.values():
            yield from arrays_in(child)
    elif isinstance(node, list):
        yield node
        for child in node:
            yield from arrays_in(child)


def test_no_reply_holds_anything_by_sample(federation: Audited) -> None:
    federation.start()
    federation.audit()
    tasks = {task for _, task, _ in federation.heard}
    assert tasks == {"audit_describe", "audit_judge", "audit_refine", "audit_conclude"}
    for client, task, reply in federation.heard:
        for array in arrays_in(reply):
            shape = tuple(array.shape) if isinstance(array, Tensor) else (len(array),)
            assert SIZES[client] not in shape, (task, shape)
            assert int(np.prod(shape)) <= 64 * 64
    for _, _, counts in (each for each in federation.heard if each[1] == "audit_conclude"):
        assert not np.isin(counts["confusion"].numpy(), (1, 2, 3, 4)).any()


def test_sites_that_fail_are_left_out_by_name(federation: Audited) -> None:
    federation.start()
    federation.wrong["hill", "audit_conclude"] = lambda reply: reply | {"noise_rate": float("nan")}
    result = federation.audit()
    summary = AuditFolder(federation.out).summary
    assert "noise_rate is not finite" in summary["left_out"]["hill"]
    by_name = {row["client"]: row for row in AuditFolder(federation.out).clients()}
    assert by_name["hill"]["verdict"] == "not assessed" and "not finite" in by_name["hill"]["reason"]
    assert by_name["hill"]["suspicious"] == "" and by_name["hill"]["samples"] == str(SIZES["hill"])
    assert by_name[NOISY]["verdict"] == "noisy"
    assert "1 could not be assessed" in result["headline"]


@pytest.mark.parametrize(
    ("spoilt", "reason"),
    [
        ({"features": np.full((443, 64), np.nan, np.float32)}, "hold NaN"),
        ({"features": np.zeros((443, 7), np.float32)}, "have 7 numbers a sample, those of the others 64"),
        ({"features": None}, "hold no features"),
        ({"labels": np.full(443, "one")}, "all samples have the same label"),
    ],
)
def test_bad_data_of_one_site(federation: Audited, spoilt: dict[str, Any], reason: str) -> None:
    federation.start()
    lake = federation.arrays["lake"] | spoilt
    np.savez(federation.folder / "lake.npz", **{key: value for key, value in lake.items() if value is not None})  # type: ignore[arg-type]
    result = federation.audit()
    assert reason in result["left_out"]["lake"]
    assert {row["client"]: row["verdict"] for row in result["clients"]}[NOISY] in ("noisy", "clean")
    assert "lake was left out" in (federation.out / "report.html").read_text()


def test_a_site_that_cannot_write_its_list_says_so(federation: Audited) -> None:
    federation.start()
    (federation.folder / "lake" / "audit").mkdir()
    (federation.folder / "lake" / "audit" / "thesis.txt").touch()
    assert "is not empty and no audit's" in federation.audit()["left_out"]["lake"]


def test_one_site_is_not_enough(federation: Audited) -> None:
    federation.start()
    federation.grid.nodes = {1: federation.grid.nodes[1]}
    with pytest.raises(Exception, match="1 of at least 2 sites came within"):
        federation.audit()
    with pytest.raises(Exception, match="An audit compares sites, so it needs two: only hill is there"):
        federation.audit(min_sites=1)


def test_simulated_nodes_are_refused(federation: Audited) -> None:
    federation.grid.nodes = {k: {"partition-id": k, "num-partitions": 2} for k in range(2)}
    with pytest.raises(Exception, match="these nodes are simulated"):
        federation.audit()


def test_the_command(federation: Audited, monkeypatch: pytest.MonkeyPatch) -> None:
    federation.start()
    federation.wrong["hill", "audit_judge"] = lambda reply: {"noise_rate": 7}

    def run_app(folder: Path, name: str | None, settings: dict[str, Any]) -> dict[str, Any]:
        assert (folder, name) == (Path("app"), "sites")
        over = {key.replace("-", "_"): value for key, value in settings.items()}
        return json.loads(json.dumps(federation.audit(**over | {"wait": 0.1}), allow_nan=False))

    monkeypatch.setattr("fedsir.deployment.flwr_command.run_app", run_app)
    words = ["flower", "audit", "app", "sites", "-o", str(federation.out), "--features", "given"]
    shown = CliRunner().invoke(command, words)
    assert shown.exit_code == 0, shown.output
    assert "left out hill: noise_rate is not a mapping" in shown.output
    assert "of 3 clients looks noisy (mill), 1 could not be assessed" in " ".join(shown.output.split())
    assert "fedsir audit review SITE/audit" in shown.output
    as_json = json.loads(CliRunner().invoke(command, [*words, "--json", "--min-sites", "3"]).output.splitlines()[-1])
    assert as_json["audit"] == str(federation.out) and len(as_json["clients"]) == 3
