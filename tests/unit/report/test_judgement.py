"""How clients were judged, whatever the method judges by, and with a thousand of them."""

from dataclasses import replace

import pytest

from fedsir.report.judgement import judgement
from fedsir.report.run_charts import noise_chart, number_table, shares_chart
from fedsir.report.run_files import Relabelled, RunFiles, read_run
from fedsir.runs.result import RunResult
from fedsir.stages.split import ClientSplit, Evidence, PairEvidence

MANY = [f"c{i}" for i in range(1000)]
WEAK = Evidence(bic_gain=-1.0, separation=2.0, p_value=0.4)
SPLIT = ClientSplit(
    clean=("a", "b"),
    noisy=("c",),
    statistics={"a": (0.3, 0.1), "b": (0.32, 0.11), "c": (0.7, 0.5)},
    posterior_noisy={"a": 0.0, "b": 0.0, "c": 1.0},
    not_assessed={},
    evidence=WEAK,
    has_two_groups=True,
    is_forced=True,
)


@pytest.fixture
def files(made: RunResult) -> RunFiles:
    return read_run(made.folder)


def test_two_similarities(files: RunFiles) -> None:
    found = judgement(replace(files, split=SPLIT))
    assert found is not None
    assert found.columns == ("mean similarity", "energy")
    assert found.by_client["c"] == ((0.7, "0.700"), (0.5, "0.500"))
    assert "whatever the evidence" in found.evidence
    assert "the verdicts may mean nothing" in found.evidence


def test_noise_rates_with_the_truth(files: RunFiles) -> None:
    split = replace(SPLIT, noise_rates={"a": 0.0, "b": 0.01, "c": 0.4}, evidence=None)
    assert files.federation is not None
    truth = replace(files.federation, noise_by_client={"a": 0.0, "b": 0.0, "c": 0.38})
    found = judgement(replace(files, split=split, federation=truth))
    assert found is not None
    assert found.has_truth
    tip = "c: noisy, noise rate 40.0\u202f% (standard error 50.0\u202f%), in truth 38.0\u202f%"
    assert tip in found.chart


def test_effects_and_losses(files: RunFiles) -> None:
    effects = {"a": (0.0, 0.1), "b": (0.1, 0.1), "c": (1.5, 0.2)}
    pairs = replace(SPLIT, effects=effects, evidence=PairEvidence(0.99, 7.0), is_forced=False)
    found = judgement(replace(files, split=pairs))
    assert found is not None
    assert found.columns == ("effect", "standard error")
    assert "found two groups" in found.evidence
    losses = replace(SPLIT, statistics={"a": (0.1, 0.2, 0.3), "c": (1.0, 2.0, 3.0)})
    found = judgement(replace(files, split=losses))
    assert found is not None
    assert found.by_client["c"] == ((2.0, "2"),)
    assert judgement(replace(files, split=None)) is None
    assert judgement(replace(files, split=replace(SPLIT, statistics={}))) is None


def test_a_thousand_clients_are_summed_up(files: RunFiles) -> None:
    noisy = {client for i, client in enumerate(MANY) if i % 4 == 0}
    split = replace(
        SPLIT,
        clean=tuple(c for c in MANY if c not in noisy),
        noisy=tuple(c for c in MANY if c in noisy),
        noise_rates={c: 0.5 if c in noisy else 0.01 for c in MANY},
        statistics=dict.fromkeys(MANY, (0.5, 0.02)),
    )
    shares = {t: {c: 0.0005 if c in noisy else 0.0012 for c in MANY} for t in range(1, 101)}
    did = {c: Relabelled(100, 50, 50, 3, 48, 1) for c in sorted(noisy)}
    many = replace(files, split=split, shares=shares, relabelled=did)
    found = judgement(many)
    assert found is not None
    assert found.left_out.startswith("The 40 highest of 1,000 clients are drawn; the others lie between 1.0")
    drawn = shares_chart(many)
    assert drawn is not None
    assert "medians over a group" in drawn[1]
    assert len(drawn[0]) < 150_000
    changed = noise_chart(many)
    assert changed is not None
    assert changed[1].endswith("the other 210 end at 3.0\u202f% or less.")


def test_long_tables_of_numbers_are_thinned() -> None:
    table = number_table("c", ("round",), [(str(i),) for i in range(1001)])
    assert len(table.rows) <= 121
    assert table.rows[0] == ("0",)
    assert table.rows[-1] == ("1000",)
    assert table.left_out == f"{len(table.rows)} of 1,001 rounds are listed."
