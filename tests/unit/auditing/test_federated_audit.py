"""The audit over sums, on the local engine: what `fedsir.audit` says, although nobody has all the samples."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from torch import nn

import fedsir
from fedsir.auditing.at_the_server import share_outcome
from fedsir.auditing.federated import SMALL, WITHHELD, AuditCounts, FederatedAudit, Outcome
from fedsir.auditing.result import AuditResult
from fedsir.auditing.sharing import HIDDEN, share
from fedsir.data.preprocessing import Preprocessing
from fedsir.engines.client_host import HostSpec
from fedsir.engines.client_store import ClientStore
from fedsir.engines.federation import EngineFederation
from fedsir.engines.local import InProcessEngine
from fedsir.engines.wire import decode
from fedsir.errors import MethodError
from fedsir.methods.reply_check import Form

NAMES = ("cat", "dog", "eel", "fox", "gnu")  # of the fixture `sites`
N_CLASSES = len(NAMES)
Sites = Any


def held(some: Sites, **settings: Any) -> tuple[Outcome, dict[str, Any], EngineFederation]:
    """Return what the server learns, and what each client keeps to itself."""
    order = np.argsort(some.clients, kind="stable")
    clients, starts = np.unique(some.clients[order], return_index=True)
    ends = [*starts[1:].tolist(), len(order)]
    store = ClientStore(
        rows_by_client={str(c): (int(a), b) for c, a, b in zip(clients, starts, ends, strict=True)},
        labels=np.searchsorted(NAMES, some.given[order]),
        image_rows=np.arange(len(order)),
        test_rows=np.zeros(0, np.int64),
        images=some.features[order][:, :, None, None],
        n_classes=N_CLASSES,
        preprocessing=Preprocessing((), (), flip=False, crop_padding=0),
    )
    method = FederatedAudit()
    engine = InProcessEngine(HostSpec(method, nn.Identity(), 0, "cpu", store))
    form = Form.of({}, classes=N_CLASSES)
    fed = EngineFederation(engine, tuple(map(str, clients)), method, seed=0, participation=1, dropout=0, form=form)
    outcome = method.hold(fed, **settings)
    return outcome, {k: decode(state)["audit"] for k, state in engine.client_states().items()}, fed


def shared_of(outcome: Outcome, **left_out: str) -> Any:
    return share_outcome(outcome, NAMES, 5, {k: reply.n_samples for k, reply in outcome.sums.items()}, left_out)


@pytest.mark.parametrize(("n_sites", "bad", "each"), [(5, (1,), 60), (3, (), 40), (4, (0, 2), 150)])
def test_sums_say_what_all_samples_together_say(
    sites: Callable[..., Sites], n_sites: int, bad: tuple[int, ...], each: int
) -> None:
    some = sites(n_sites, bad, each=each)
    expected = fedsir.audit(some.features, some.given, some.clients)
    outcome, kept, _ = held(some)
    assert outcome.failures == {}
    for client in kept:
        mine = expected.samples.take(some.clients == client)
        np.testing.assert_allclose(kept[client]["score"].numpy(), mine["score"], atol=1e-3)
        names = np.array(NAMES)[kept[client]["suggested"].numpy()]
        np.testing.assert_array_equal(names, mine["suggested_label"])
    same_tables(shared_of(outcome), expected)


def same_tables(shared: Any, expected: AuditResult) -> None:
    """Both say the same of every client, rates to rounding."""
    in_memory = share(expected, 5)
    assert shared.summary == {**in_memory.summary, "left_out": {}}
    rates = ("noise_rate", "noise_rate_low", "noise_rate_high", "probability_noisy")
    for ours, theirs in zip(shared.clients, in_memory.clients, strict=True):
        assert {k: v for k, v in ours.items() if k not in rates} == {k: v for k, v in theirs.items() if k not in rates}
        assert [ours[k] for k in rates] == pytest.approx([theirs[k] for k in rates], abs=2e-3, nan_ok=True)
    cells = [{tuple(cell.values()) for cell in each.confusion} for each in (shared, in_memory)]
    assert cells[0] == cells[1]


def test_small_counts_do_not_leave_the_client(sites: Callable[..., Sites]) -> None:
    some = sites(4, (1,), rate=0.25, each=100)
    outcome, kept, _ = held(some, min_cell=2)  # less than a client tells
    n_small = 0
    for client, reply in outcome.counts.items():
        true = np.zeros((N_CLASSES, N_CLASSES), int)
        given = np.searchsorted(NAMES, some.given[some.clients == client])
        np.add.at(true, (given, kept[client]["suggested"].numpy()), 1)
        np.fill_diagonal(true, 0)
        assert not np.isin(reply.confusion, (1, 2, 3, 4)).any() and reply.suspicious not in (1, 2, 3, 4)
        is_told = reply.confusion > 0
        np.testing.assert_array_equal(reply.confusion[is_told], true[is_told])
        np.testing.assert_array_equal(reply.confusion == 0, true == 0)
        n_small += int((reply.confusion == SMALL).sum())
        if reply.suspicious > 0:  # what is hidden must not be the one count that is missing in the total
            hidden = reply.suspicious - reply.confusion[is_told].sum()
            assert hidden == 0 or (hidden >= 5 and (reply.confusion < 0).sum() > 1)
    assert n_small


def test_classes_of_few_samples_stay_out_of_the_sums(sites: Callable[..., Sites]) -> None:
    outcome, _, _ = held(sites(3, (), each=60), min_class_samples=12)
    counts = np.array([reply.moments.counts for reply in outcome.sums.values()])
    assert (counts == 0).any() and not ((counts > 0) & (counts < 12)).any()
    for reply in outcome.sums.values():
        assert not reply.moments.sums[reply.moments.counts == 0].any()


def test_a_client_that_answers_nan_is_left_out_by_name(sites: Callable[..., Sites]) -> None:
    some = sites(4, (1,), each=100)
    some.features[some.clients == "site 2"] = np.nan
    outcome, kept, _ = held(some)
    assert "NaN" in outcome.failures["site 2"] and "site 2" not in kept
    shared = shared_of(outcome)
    assert shared.summary["noisy"] == 1
    assert "site 2" in shared.summary["left_out"]


def test_nobody_to_compare_with(sites: Callable[..., Sites]) -> None:
    some = sites(2, (), each=60)
    some.features[some.clients == "site 0"] = np.inf
    with pytest.raises(MethodError, match=r"needs two; only site 1 can be audited\. site 0 was left out: .*infinite"):
        held(some)


def test_where_nobody_finishes_the_reasons_are_told(
    sites: Callable[..., Sites], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedsir.auditing.federated.weighed", lambda *_: 1 / 0)
    with pytest.raises(
        MethodError, match=r"No site could finish the audit\. site 0 was left out: ZeroDivision.*; site 1"
    ):
        held(sites(3, (), each=60))


def test_a_client_with_one_class_is_judged_by_the_others(sites: Callable[..., Sites]) -> None:
    some = sites(4, (1,), each=100)
    keep = (some.clients != "site 3") | (some.given == "dog")
    some = replace(some, features=some.features[keep], given=some.given[keep], clients=some.clients[keep])
    outcome, _, _ = held(some)
    same_tables(shared_of(outcome), fedsir.audit(some.features, some.given, some.clients))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"suspicious": -2}, "negative"),
        ({"confusion": np.eye(3, dtype=int)}, "the given one"),
        ({"noise_rate": 1.5}, "between 0 and 1"),
        ({"noise_rate": None}, "missing"),
        ({"judged": "59 of"}, "words"),
    ],
)
def test_counts_that_make_no_sense_are_refused(changed: dict[str, Any], reason: str) -> None:
    good: dict[str, Any] = {
        "suspicious": SMALL,
        "confusion": np.array([[0, 7, SMALL], [WITHHELD, 0, 0], [0, 0, 0]]),
        "judged": "most of",
        "noise_rate": 0.2,
        "noise_rate_low": 0.1,
        "noise_rate_high": 0.3,
        "probability_noisy": 1.0,
    }
    assert AuditCounts(**good).fault() is None
    assert reason in (AuditCounts(**good | changed).fault() or "")


def test_hidden_counts_are_words_in_the_files(sites: Callable[..., Sites]) -> None:
    outcome, _, _ = held(sites(4, (1,), rate=0.25, each=100))
    counts = {cell["count"] for cell in shared_of(outcome).confusion}
    assert counts & {"<5", HIDDEN} and not counts & {1, 2, 3, 4, SMALL, WITHHELD}
