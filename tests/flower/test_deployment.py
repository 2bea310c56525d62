"""Real sites, each with a folder of its own, over a grid without a network: the server's half and the sites' half."""

import csv
import json
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message
from three_on_a_grid import NOISY, SETTINGS, WORDS, Federation

from fedsir import __version__
from fedsir.cli.flower import check
from fedsir.data.source import Source
from fedsir.deployment.app_config import ServerConfig, read_app_config, server_keys
from fedsir.deployment.flwr_command import what_failed
from fedsir.deployment.new_app import write_app
from fedsir.deployment.server import lasting
from fedsir.deployment.site import site_app
from fedsir.deployment.site_data import load_site_data, read_site
from fedsir.deployment.site_folder import write_site
from fedsir.engines.flower.records import answer_records, read_answer, read_call
from fedsir.engines.wire import decode, encode
from fedsir.errors import ConfigError, DataError, FedsirError
from fedsir.methods.registry import known_methods
from fedsir.runs.config import flat, parse_config
from fedsir.runs.result import load_run


def test_the_bad_site_is_named_and_its_labels_are_repaired_on_its_disk(sites: Federation) -> None:
    result = sites.serve()
    assert (result["noisy_clients"], result["clean_clients"]) == ([NOISY], ["hill", "lake"])
    assert result["left_out"] == []
    given = np.load(sites.folder / f"{NOISY}.npz")["labels"]
    true = WORDS[sites.digits.train_labels[100:200]]
    rows = list(csv.DictReader(next((sites.folder / NOISY).glob("labels-*.csv")).open()))
    assert rows
    assert all(given[int(row["sample"])] == row["given"] != row["suggested"] for row in rows)
    is_better = sum(true[int(row["sample"])] == row["suggested"] for row in rows)
    assert is_better > len(rows) / 2
    assert not list((sites.folder / "hill").glob("labels-*.csv"))


def test_accuracy_is_counted_at_the_sites(sites: Federation) -> None:
    result = sites.serve()
    held_out = {
        name: load_site_data(read_site(sites.folder / name / "site.toml")).is_held_out.sum()
        for name in ("hill", NOISY, "lake")
    }
    by_site = result["accuracy_by_site"]
    assert list(by_site) == ["hill", "lake", NOISY]
    together = sum(by_site[name] * n for name, n in held_out.items()) / sum(held_out.values())
    assert result["accuracy"] == pytest.approx(together)
    assert result["test_accuracy"] is None


def test_a_server_with_a_test_set_reports_both(sites: Federation) -> None:
    images = sites.digits.test_images[:80, 0]
    np.savez(sites.folder / "test.npz", images=images, labels=WORDS[sites.digits.test_labels[:80]])
    result = sites.serve(test_data=str(sites.folder / "test.npz"))
    assert 0.2 < result["test_accuracy"] <= 1
    run = load_run(result["run_dir"])  # and whoever has the folder can use the model
    predicted = np.array(run.class_names)[run.predict(images)]
    assert (predicted == WORDS[sites.digits.test_labels[:80]]).mean() == pytest.approx(result["test_accuracy"])


def test_classes_go_by_name(sites: Federation) -> None:
    """A site without some classes has other numbers for the rest, and the same names."""
    labels = sites.digits.train_labels
    odd = [i for i in range(400, 800) if labels[i] % 2][:100]
    images = sites.digits.images[sites.digits.train_rows[odd]]
    np.savez(sites.folder / "odd.npz", images=images[:, 0], labels=WORDS[labels[odd]])
    write_site(sites.folder / "odd", "odd", sites.folder / "odd.npz", superlink="localhost:1", ca=None)
    sites.grid.nodes[9] = {"site": str(sites.folder / "odd")}
    result = sites.serve(min_sites=4)
    assert sorted(result["class_names"]) == sorted(WORDS)
    assert "odd" in result["clean_clients"]
    assert result["accuracy_by_site"]["odd"] > 0.5


def test_a_killed_server_goes_on_where_it_stopped(sites: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed after sites have already trained for round 2: they begin it anew, from what they knew after round 1."""
    straight = Federation(sites.folder.with_name("straight"), sites.digits).serve()

    def die(message: Message, context: Context) -> Message | None:
        if message.metadata.message_type == "evaluate.held_out" and read_call(message.content)[0].round == 2:
            raise InterruptedError
        return sites.app(message, context)

    sites.grid.answer = die
    with pytest.raises(InterruptedError):
        sites.serve()
    assert [line["round"] for line in sites.lines()] == [0, 1]
    sites.grid.answer = sites.app
    result = sites.serve()
    assert result["model_sha256"] == straight["model_sha256"]
    assert result["accuracy_by_site"] == straight["accuracy_by_site"]
    assert sites.serve()["model_sha256"] == straight["model_sha256"]  # and a finished run is reported again


def test_a_site_whose_data_change_is_left_out_from_then_on(sites: Federation) -> None:
    def change(message: Message, context: Context) -> Message:
        is_call = message.metadata.message_type.startswith("train.")
        if is_call and read_call(message.content)[0].round == 1:
            path = sites.folder / "lake.npz"
            with np.load(path) as found:
                arrays = dict(found)
            np.savez(path, **{**arrays, "labels": np.roll(arrays["labels"], 1)})
        return sites.app(message, context)

    sites.grid.answer = change
    left_out = sites.serve()["left_out"]
    assert {(entry["round"], entry["client"]) for entry in left_out} == {(1, "lake"), (2, "lake")}
    assert all("its data have changed since the run began" in entry["reason"] for entry in left_out)


def test_too_few_sites_stop_the_run_and_keep_its_checkpoint(sites: Federation) -> None:
    def leave(message: Message, context: Context) -> Message:
        if message.metadata.message_type == "evaluate.held_out":
            sites.grid.nodes.pop(3, None)
        return sites.app(message, context)

    sites.grid.answer = leave
    with pytest.raises(Exception, match="2 of at least 3 sites are connected"):
        sites.serve()
    assert [line["round"] for line in sites.lines()] == [0]
    sites.grid.nodes[8] = {"site": str(sites.folder / "lake")}
    sites.grid.answer = sites.app
    assert sites.serve()["left_out"] == []


def test_too_few_sites_to_begin(sites: Federation) -> None:
    with pytest.raises(Exception, match="3 of at least 5 sites came within"):
        sites.serve(min_sites=5)


def test_a_site_that_joins_late_is_waited_for_by_name(sites: Federation) -> None:
    late = sites.grid.nodes.pop(3)

    def join(message: Message, context: Context) -> Message:
        if message.metadata.message_type == "evaluate.held_out":
            sites.grid.nodes[3] = late
        return sites.app(message, context)

    sites.grid.answer = join
    result = sites.serve(sites="hill,mill,lake", min_sites=2)
    assert result["left_out"] == [{"round": 0, "client": "lake", "reason": "its site is not connected"}]
    assert set(result["accuracy_by_site"]) == {"hill", "lake", NOISY}


def test_what_does_not_fit_is_said_before_anything_trains(
    sites: Federation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = sites.folder / "small.npz"
    np.savez(small, images=np.zeros((60, 16, 16), np.uint8), labels=np.repeat(["one", "two"], 30))
    write_site(sites.folder / "small", "small", small, superlink="localhost:1", ca=None)
    sites.grid.nodes[7] = {"site": str(sites.folder / "small")}
    sites.grid.nodes[8] = {"site": str(sites.folder / "hill")}
    sites.grid.nodes[9] = {"site": str(sites.folder / "nowhere")}
    report = sites.serve(check=True)
    assert list(report["sites"]) == ["hill", "lake", NOISY, "small"]
    assert report["sites"]["hill"]["class_names"] == sorted(WORDS)
    text = "\n".join(report["problems"])
    assert "two sites have the same client id" in text
    assert "nowhere/site.toml cannot be read" in text
    assert "'small' cannot take part: its images are 16×16 pixels in grey, those of the others 8×8" in text
    assert not (sites.folder / "run").exists()
    assert json.loads(capsys.readouterr().out.partition("FEDSIR-RESULT ")[2]) == report
    monkeypatch.setattr("fedsir.deployment.flwr_command.run_app", lambda *_: report)
    with pytest.raises(FedsirError, match="3 of these do not fit"):
        check(Path("app"), wait=1.0)
    shown = capsys.readouterr().out
    assert f"small: fedsir {__version__}, 48 images to train on, 12 held out, 16×16 grey, classes one, two" in shown


def test_a_site_with_another_version_is_refused_by_name(sites: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedsir.deployment.site_data.__version__", "0.0.1")
    with pytest.raises(Exception, match=r"Site 'hill' cannot take part: it has fedsir 0.0.1, the server has"):
        sites.serve()


# ---------------------------------------------------------------- a site's folder


def test_a_sites_folder(tmp_path: Path, sites: Federation) -> None:
    folder = sites.folder / "hill"
    assert {path.name for path in folder.iterdir()} >= {"site.toml", "key", "key.pub", "start.sh"}
    assert (folder / "key").stat().st_mode & 0o777 == 0o600
    assert (folder / "key.pub").read_text().startswith("ecdsa-sha2-nistp384 ")
    key = (folder / "key").read_bytes()
    write_site(folder, "hill", sites.folder / "hill.npz", superlink="localhost:1", ca=tmp_path / "ca.crt")
    assert (folder / "key").read_bytes() == key, "a site keeps its key"
    assert "FLWR_TELEMETRY_ENABLED=0" in (folder / "start.sh").read_text()


def test_data_of_several_clients_are_no_sites(tmp_path: Path, digits: Source) -> None:
    clients = np.repeat(["a", "b"], 50)
    np.savez(
        tmp_path / "two.npz", images=digits.train_images[:100, 0], labels=digits.train_labels[:100], clients=clients
    )
    with pytest.raises(DataError, match="holds the data of clients a, b: a site has those of one client"):
        write_site(tmp_path / "site", "a", tmp_path / "two.npz", superlink="localhost:1", ca=None)


def test_the_quick_copy_is_the_data(sites: Federation) -> None:
    site = read_site(sites.folder / "hill" / "site.toml")
    read, copied = load_site_data(site), load_site_data(site, sites.folder / "hill")
    assert read.sha256 == copied.sha256
    assert np.array_equal(read.images, copied.images)
    assert read.names == copied.names


# ---------------------------------------------------------------- an app


def test_an_app_has_every_setting(tmp_path: Path) -> None:
    config = parse_config({**SETTINGS, "data": {"noisy_clients": ["1", "2"]}})
    write_app(tmp_path / "my App", config)
    project = tomllib.loads((tmp_path / "my App" / "pyproject.toml").read_text())
    table = dict(flat(project["tool"]["flwr"]["app"]["config"]))
    assert table.keys() >= server_keys().keys()
    assert all(isinstance(value, str | int | float | bool) for value in table.values())
    server, found = read_app_config(table, "fedsir")
    assert found == config
    assert server == ServerConfig(run_dir=str(tmp_path / "my App" / "run"))
    assert project["project"]["name"] == "my-app"


def test_the_code_of_a_method_stays_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower unpacks an app that has changed into another folder, and a run that goes on must find the same file."""
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "home"))
    files = [tmp_path / name / "mine.py" for name in ("app.1", "app.2", "app.3")]
    for file, code in zip(files, ("x = 1", "x = 1", "x = 2"), strict=True):
        file.parent.mkdir()
        file.write_text(code)
    first, second, changed = (lasting(f"{file}:Mine") for file in files)
    assert first == second != changed
    assert Path(first.removesuffix(":Mine")).read_text() == "x = 1"
    assert lasting("fedsir") == "fedsir"


def test_a_run_stays_at_the_server(tmp_path: Path) -> None:
    """Flower packs what it finds in an app's folder and sends it to every site."""
    from flwr.cli.build import build_fab_from_disk

    write_app(tmp_path / "app", parse_config({"method": {"name": "fedavg"}}))
    before = build_fab_from_disk(tmp_path / "app")
    (tmp_path / "app" / "run").mkdir()
    (tmp_path / "app" / "run" / "config.toml").write_text("x = 1")
    assert build_fab_from_disk(tmp_path / "app") == before


@pytest.mark.parametrize("name", sorted(known_methods()))
def test_every_method_makes_an_app(tmp_path: Path, name: str) -> None:
    config = parse_config({"method": {"name": name}, "data": {"public": "held-out"}})
    write_app(tmp_path / "app", config)
    project = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())
    assert read_app_config(dict(flat(project["tool"]["flwr"]["app"]["config"])), name)[1] == config
    assert site_app(name, str(tmp_path / "app"))._registered_funcs.keys() >= {"query.whoami", "evaluate.held_out"}


def test_a_method_of_ones_own_is_copied(tmp_path: Path) -> None:
    code = tmp_path / "mine.py"
    code.write_text("from fedsir.methods.fedavg import FedAvg\nclass Mine(FedAvg):\n    name = 'mine'\n")
    write_app(tmp_path / "app", parse_config({"method": {"name": f"{code}:Mine"}}))
    inside = tmp_path / "app" / "app_app"
    assert (inside / "mine.py").read_bytes() == code.read_bytes()
    assert "site_app('mine.py:Mine', __file__)" in (inside / "client_app.py").read_text()
    app = site_app("mine.py:Mine", str(inside / "client_app.py"))
    assert "train.train" in app._registered_funcs


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("min-sites", "three", "min-sites: must be int"),
        ("min-sites", 0, "must be positive"),
        ("max-reply", -1, "max-reply must be"),
        ("round", 3, "Did you mean 'rounds'"),
        ("method.name", "fedavg", "has the code of 'fedsir' alone"),
        ("method.lr", -1.0, "method.lr"),
    ],
)
def test_a_wrong_setting_of_an_app_is_named(key: str, value: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_app_config({key: value}, "fedsir")


def test_an_app_is_not_written_over_something(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "notes.txt").touch()
    with pytest.raises(ConfigError, match="already there"):
        write_app(tmp_path / "app", parse_config({"method": {"name": "fedavg"}}))


# ---------------------------------------------------------------- a site that answers rubbish


def with_nan(reply: dict[str, Any]) -> None:
    next(iter(reply["model"].values())).view(-1)[0] = float("nan")


def with_other_shapes(reply: dict[str, Any]) -> None:
    name = next(iter(reply["model"]))
    reply["model"][name] = reply["model"][name].unsqueeze(0)


def without_a_field(reply: dict[str, Any]) -> None:
    del reply["n_samples"]


def with_long_directions(reply: dict[str, Any]) -> None:
    reply["spectra"]["directions"] *= 3


def of_a_gigabyte(reply: dict[str, Any]) -> None:
    reply["model"] = {"w": np.zeros(limit() + 1, np.uint8)}


def limit() -> int:
    from fedsir.engines.flower import grid

    return grid.ALWAYS_ALLOWED


@pytest.mark.parametrize(
    ("spoil", "t", "words"),
    [
        (with_nan, 1, "model"),
        (with_other_shapes, 1, "model"),
        (without_a_field, 1, "n_samples"),
        (with_long_directions, 2, "directions"),
        (of_a_gigabyte, 1, "bytes, more than the"),
    ],
)
def test_a_site_that_answers_rubbish_is_left_out_by_name(
    sites: Federation, spoil: Callable[[dict[str, Any]], None], t: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the round after it takes part again, from what it knew before."""
    monkeypatch.setattr("fedsir.engines.flower.grid.ALWAYS_ALLOWED", 3_000_000)  # a gigabyte takes a while to make

    def answer(message: Message, context: Context) -> Message:
        reply = sites.app(message, context)
        is_train = message.metadata.message_type == "train.train_clean"
        if is_train and (order := read_call(message.content)[0]).round == t and order.client == "lake":
            found = read_answer(reply.content)
            assert found.reply is not None
            tree = decode(found.reply)
            spoil(tree)
            reply.content = answer_records(replace(found, reply=encode(tree)))
        return reply

    sites.grid.answer = answer
    (entry,) = sites.serve()["left_out"]
    assert (entry["round"], entry["client"]) == (t, "lake")
    assert words in entry["reason"]


def test_what_flower_says_in_a_box_becomes_one_line() -> None:
    lines = ("Loading", "╭─ Error ──╮", "│ connection 'x' not found  │", "│ in the file.  │", "╰──────────╯", "")
    assert what_failed("\n".join(lines)) == "connection 'x' not found in the file."
    assert what_failed("one\ntwo\n\n") == "two"
    assert what_failed("") == ""
