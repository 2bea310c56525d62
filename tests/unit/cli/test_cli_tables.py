"""Tables on the command line: unknown values, narrow screens, and names that look like markup or steer a terminal."""

from typing import Any

import pytest

from fedsir.cli.plan import MOST_ROWS, _print
from fedsir.cli.result_table import result_table


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")


def result(**more: Any) -> dict[str, Any]:
    return {
        "method": "fedavg",
        "accuracy": 0.5,
        "accuracy_half_width": 0.05,
        "identification_accuracy": None,
        "noise_before": None,
        "noise_after": None,
        "bytes_up": 1500,
        "bytes_down": 2_500_000,
        "seconds": 12.3,
        "clean_clients": None,
        "noisy_clients": None,
        "evidence": None,
        "run_dir": "runs/[old]/x",
        **more,
    }


def planned(clients: list[str], n_classes: int, noise: float | None) -> dict[str, Any]:
    return {
        "name": "[/own]",
        "n_train": 1200,
        "n_test": 300,
        "notes": ["ignored the array '[/x]'"],
        "class_names": [f"[b]{c}" for c in range(n_classes)],
        "client_sizes": dict.fromkeys(clients, 1200),
        "given_label_counts": dict.fromkeys(clients, [7] * n_classes),
        "truth_is_known": noise is not None,
        "noisy_clients": clients[:1],
        "noise_by_client": None if noise is None else dict.fromkeys(clients, noise),
        "estimate": {
            "model": "small_cnn",
            "seconds": 100,
            "workers": 2,
            "memory_bytes": 3e9,
            "model_bytes": 157_000,
            "images_per_second": 1234.0,
        },
    }


def test_a_result_is_a_row_and_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    known = result(identification_accuracy=1.0, noise_before=0.8, noise_after=0.25, run_dir="b")
    result_table([result(), known])
    out = capsys.readouterr().out
    header, first, second, *_ = out.splitlines()
    assert " ".join(header.split()) == "method accuracy identification label noise bytes up bytes down time"
    assert " ".join(first.split()) == "fedavg 50.0% ± 5.0% – – 1.5 kB 2.5 MB 12 s"
    assert " ".join(second.split()) == "fedavg 50.0% ± 5.0% 100% 80.0% → 25.0% 1.5 kB 2.5 MB 12 s"
    assert out.splitlines()[-2:] == ["run folder: runs/[old]/x", "run folder: b"]


def test_personal_models_have_a_spread(capsys: pytest.CaptureFixture[str]) -> None:
    result_table([result(), result(method="rhfl", accuracy_spread=0.125)])
    lines = [line for line in capsys.readouterr().out.splitlines() if "spread by" in line]
    assert lines == ["rhfl: mean over the clients' own models, whose accuracies spread by 12.5%"]


def test_the_verdict_names_clients_and_evidence(capsys: pytest.CaptureFixture[str]) -> None:
    evidence = {"p_value": 0.0005, "separation": 22.13, "bic_gain": 12.0}
    accused = result(noisy_clients=["[/a]", "b"], clean_clients=["c"], evidence=evidence, two_groups="found")
    unsure = {**evidence, "p_value": 0.4}
    nobody = result(noisy_clients=[], clean_clients=["a", "b"], evidence=unsure, two_groups="not found")
    older = result(noisy_clients=["old"], clean_clients=["b"], evidence=unsure)
    many = result(noisy_clients=[str(i) for i in range(30)], clean_clients=["x"], evidence=None)
    forced = result(noisy_clients=["a"], clean_clients=["b"], evidence=evidence, two_groups="asked for")
    unclear = result(noisy_clients=[], clean_clients=["b"], not_assessed={"a": "died", "c": "one class", "d": "died"})
    by_pairs = {"probability": 0.9987, "separation": 6.24}
    paired = result(noisy_clients=["p"], clean_clients=["q"], evidence=by_pairs, two_groups="found")
    alike = {"probability": 0.0, "separation": 0.0}
    same = result(noisy_clients=[], clean_clients=["q"], evidence=alike, two_groups="not found", split_note="no pairs")
    result_table([accused, nobody, many, forced, unclear, older, paired, same])
    out = capsys.readouterr().out
    found = "two groups found: 6.2 spreads apart by pairs of classes, probability 99.9%"
    assert f"called 1 of 2 clients noisy: p ({found})" in out
    none = "no convincing sign of two groups: 0.0 spreads apart by pairs of classes, probability 0.0%"
    assert f"called all 1 clients clean ({none}); no pairs" in out
    assert "fedavg called 2 of 3 clients noisy: [/a], b (two groups found: 22.1 spreads apart, p = 0.0005)" in out
    assert "fedavg called all 2 clients clean (no convincing sign of two groups: 22.1 spreads apart, p = 0.4)" in out
    assert "called 1 of 2 clients noisy: a (two groups were asked for, not found; they are 22.1 spreads apart" in out
    assert "called all 1 assessed clients clean; not assessed (died): a, d; not assessed (one class): c" in out
    assert "(one class): c; training treats these like noisy clients" in out
    assert "called 1 of 2 clients noisy: old (22.1 spreads apart, p = 0.4)" in out
    assert "called 30 of 31 clients noisy: 0, 1, 2" in out
    assert ", 19, … (result.json has them all)" in out


def test_a_plan_shows_names_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    _print(planned(["[/red]a", "[bold]b"], 2, 0.5))
    out = capsys.readouterr().out
    assert out.splitlines()[0] == "[/own]: 1,200 training images, 300 test images"
    assert "note: ignored the array '[/x]'" in out
    rows = [line.split() for line in out.splitlines()]
    assert ["client", "images", "labels", "noise", "[b]0", "[b]1"] in rows
    assert ["[/red]a", "1,200", "noisy", "50%", "7", "7"] in rows
    assert ["[bold]b", "1,200", "clean", "50%", "7", "7"] in rows
    assert "about 2 min with 2 worker(s), 3.0 GB of memory, 157.0 kB per model on the wire" in out


def test_a_plan_says_what_it_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    _print(planned([f"c{i}" for i in range(MOST_ROWS)], 3, None))
    lines = capsys.readouterr().out.splitlines()
    [row] = [line for line in lines if line.startswith("c0 ")]
    assert row.split() == ["c0", "1,200", "?", "?", "7", "7", "7"]
    assert any(line.startswith(f"c{MOST_ROWS - 1} ") for line in lines)


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize("n_classes", [1, 10, 100])
@pytest.mark.parametrize("class_name", ["{}", "a class with a long name, number {} of many"])
def test_numbers_of_a_plan_are_never_cut(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    columns: int,
    n_classes: int,
    class_name: str,
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    counts = [12_345 + c for c in range(n_classes)]
    names = [class_name.format(c) for c in range(n_classes)]
    clients = [f"a client with a long name {k}" for k in range(2)]
    _print(
        planned(clients, n_classes, 0.5) | {"class_names": names, "given_label_counts": dict.fromkeys(clients, counts)}
    )
    lines = capsys.readouterr().out.splitlines()
    rows = [line for line in lines if "1,200" in line and "50%" in line]
    assert len(rows) == 2 and len(set(rows)) == 2
    header = lines[lines.index(rows[0]) - 1].split()
    if header[-2:] == ["the", "largest"]:  # not enough room for all classes
        assert rows[0].split()[4:][rows[0].split()[4:].index("50%") + 1] == str(n_classes)
        assert f"{counts[-1]:,}" in rows[0]
        assert "--json has every client and class." in lines
    else:
        assert rows[0].split()[-n_classes:] == list(map(str, counts))
        assert len(rows[0]) <= columns
    if columns == 80:
        assert all(len(row) <= 80 for row in rows)


def test_a_plan_for_many_clients_is_a_summary_and_the_extremes(capsys: pytest.CaptureFixture[str]) -> None:
    clients = [str(k) for k in range(10_000)]
    many = planned(clients, 3, 0.5) | {
        "client_sizes": {client: 3 + int(client) % 7 for client in clients} | {"77": 1, "5": 1000},
        "given_label_counts": {client: [1, 2, 0] for client in clients},
        "noisy_clients": clients[:7000],
        "noise_by_client": {client: 0.6 if int(client) < 7000 else 0.0 for client in clients},
    }
    _print(many)
    out = capsys.readouterr().out
    assert len(out.splitlines()) < 30
    rows = {line.split("  ")[0]: " ".join(line.split("  ")[1:]).split() for line in out.splitlines()}
    assert rows["10,000 clients"] == ["all", "noisy", "clean"]
    assert rows["how many"] == ["10,000", "7,000", "3,000"]
    assert rows["images each, from … to"] == ["1", "to", "1,000", "1", "to", "1,000", "3", "to", "9"]
    assert rows["images each, middle half"] == ["4", "to", "8"] * 3
    assert rows["images each, median"] == ["6", "6", "6"]
    assert rows["classes each, from … to"] == ["2", "to", "2"] * 3
    assert rows["wrong labels each, from … to"] == ["0%", "to", "60%", "60%", "to", "60%", "0%", "to", "0%"]
    assert rows["77"][:2] == ["1", "noisy"]
    assert rows["5"][:2] == ["1,000", "noisy"]
    assert "given labels of all: [b]1 20,000, [b]0 10,000\n" in out
    assert "--json has every client and class." in out


def test_a_summary_of_clients_nobody_knows_has_one_column(capsys: pytest.CaptureFixture[str]) -> None:
    _print(planned([f"c{i}" for i in range(MOST_ROWS + 1)], 3, None) | {"noisy_clients": []})
    lines = capsys.readouterr().out.splitlines()
    assert [f"{MOST_ROWS + 1}", "clients", "all"] in [line.split() for line in lines]
    assert ["wrong", "labels", "?"] in [line.split() for line in lines]
