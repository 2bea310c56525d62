"""The audit as clients and a server hold it when nobody has all the samples: sums and a few numbers travel.

A client's images are features here, (n, d, 1, 1) float32: a network made them before, where the data lie. What is found
about single samples stays with the client, in `client.state["audit"]`; what leaves are sums, likelihoods and counts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
from pydantic import Field

from fedsir.auditing.findings import PARTS, VERDICTS, Findings
from fedsir.auditing.sharing import HIDDEN, shown, shown_together
from fedsir.auditing.weighing import (
    MOST_STEPS,
    log_likelihood,
    most_for_refining,
    refined,
    temperatures_near,
    trust_of,
    weighed,
)
from fedsir.data.shapes import Shape
from fedsir.embeddings.stage_one import probability_noisy
from fedsir.errors import DataError, MethodError
from fedsir.methods.base import Client, Federation, Method, Payload, ServerState, client_task
from fedsir.methods.bayes_relabelling import discriminant_in
from fedsir.methods.replies import ClientId, Reply
from fedsir.methods.settings import MethodConfig
from fedsir.methods.spectral_identification import Judged
from fedsir.stages.bayes import Temperature
from fedsir.stages.discriminant import ClassMoments, class_moments, discriminant_scores, on_the_wire
from fedsir.stages.identify import class_directions, class_similarity, off_diagonal_stats
from fedsir.stages.noise_rates import (
    BELIEFS,
    Belief,
    NoiseRate,
    discriminants_of_others,
    judge_each_other,
    most_for_judging,
    noise_rate,
    split_by_noise_rates,
)
from fedsir.stages.rate_interval import RateInterval, rate_interval
from fedsir.stages.spectrum import Array, Features, Labels, class_features
from fedsir.stages.split import ClientSplit, OffDiagonal

if TYPE_CHECKING:
    from torch import Tensor

MIN_CLASS_SAMPLES = 5  # of a class, for its direction to count; as in `fedsir.identify`
SMALLEST_CELL = 5  # a client tells no count from 1 to 4, whatever the server asks for
SMALL, WITHHELD = -1, -2  # in place of a count: below the smallest cell; hidden for another's sake


@dataclass(frozen=True)
class AuditSums(Reply):
    """What a site sends first: sums of its features by given label, and how alike its classes are.

    moments : count and sum of the features of each class, and one matrix of second moments
    mean : mean of the similarities of two different classes; none with fewer than two that have enough samples
    energy : mean of their squares; likewise
    n_usable_classes : how many classes had enough samples for that
    n_samples : how many samples the site has
    n_classes : of how many classes they are
    network : hash of the network that made the features; "given" where they came as they are
    """

    moments: ClassMoments
    mean: float | None
    energy: float | None
    n_usable_classes: int
    n_samples: int
    n_classes: int
    network: str

    def fault(self) -> str | None:
        if int(self.moments.counts.sum()) > self.n_samples:
            return "moments.counts: they are more than the site has samples"
        return self.moments.fault

    @property
    def statistics(self) -> OffDiagonal:
        mean, energy = (math.nan if value is None else value for value in (self.mean, self.energy))
        return OffDiagonal(mean, energy, self.n_usable_classes)


@dataclass(frozen=True)
class AuditLikelihoods(Reply):
    """How likely a site's labels are, by how far scores are trusted.

    by_temperature : log-likelihood of its given labels at each temperature asked for; sites' add up
    """

    by_temperature: Annotated[Array, Shape(2 * MOST_STEPS + 3)]


@dataclass(frozen=True)
class AuditCounts(Reply):
    """What the server learns of a site's labels: counts and a rate, and nothing of a single sample.

    suspicious : how many samples look like another class; -1 where there are some, but fewer than the smallest cell
    confusion : suspicious samples by given (row) and suggested class; -1 likewise, -2 where a count is hidden because
        a smaller one could be computed from it
    judged : how many samples are of classes that others have enough of: "all", "most of" or "fewer than half of" them
    noise_rate : about which share of its labels is wrong; none where too few could be judged
    noise_rate_low : the share lies between this
    noise_rate_high : and this, in 95 of 100 cases
    probability_noisy : how likely more than 5 % are wrong
    """

    suspicious: int
    confusion: Annotated[Labels, Shape("classes", "classes", kind="int")]
    judged: str
    noise_rate: float | None
    noise_rate_low: float | None
    noise_rate_high: float | None
    probability_noisy: float | None

    def fault(self) -> str | None:
        if self.suspicious < SMALL or bool((self.confusion < WITHHELD).any()):
            return "a count is negative"
        if self.judged not in PARTS:
            return "judged: it is none of the words for it"
        if bool(self.confusion.diagonal().any()):
            return "confusion: a suggested class is the given one"
        shares = [self.noise_rate, self.noise_rate_low, self.noise_rate_high, self.probability_noisy]
        if any(share is not None and not 0 <= share <= 1 for share in shares):
            return "a share is not between 0 and 1"
        return None if len({share is None for share in shares}) == 1 else "some of the noise rate is missing"

    @property
    def interval(self) -> RateInterval | None:
        if self.noise_rate is None:
            return None
        assert self.noise_rate_low is not None and self.noise_rate_high is not None
        assert self.probability_noisy is not None  # `fault` has looked
        return RateInterval(self.noise_rate, self.noise_rate_low, self.noise_rate_high, self.probability_noisy)


@dataclass(frozen=True)
class Outcome:
    """What a federated audit comes to; mappings have the clients of which that is known.

    sums, counts : first and last replies
    verdicts : client → verdict and, for those that were not assessed, the reason
    probabilities : client → how likely it is noisy, by Stage I
    failures : client → why it was left out
    temperature : how far features were trusted
    """

    sums: Mapping[ClientId, AuditSums]
    counts: Mapping[ClientId, AuditCounts]
    verdicts: Mapping[ClientId, tuple[str, str]]
    probabilities: Mapping[ClientId, float]
    failures: Mapping[ClientId, str]
    temperature: float
    note: str

    @property
    def n_others(self) -> int:
        """By how many others each client was judged."""
        return len(self.sums) - 1


class AuditConfig(MethodConfig):
    """network : what made this client's features."""

    network: str = Field("given", description="hash of the network that made the features")


class FederatedAudit(Method[AuditConfig, ServerState]):
    """Stage I of the preset `plus` over sums; then each client weighs its own labels."""

    name = "audit"
    Config = AuditConfig

    def round(self, t: int, state: ServerState, fed: Federation) -> ServerState:
        """Return the state as it is: an audit trains nothing."""
        del t, fed
        return state

    def hold(self, fed: Federation, *, min_cell: int = SMALLEST_CELL, min_class_samples: int = 1) -> Outcome:
        """Ask everybody in turn, and return what all said; a client that fails once is not asked again.

        Parameters
        ----------
        min_cell : smallest count that clients tell
        min_class_samples : a class of which a client has fewer samples is in none of its sums
        """
        sums = self._comparable(fed, fed.ask(self.audit_describe, fed.clients, min_class_samples=min_class_samples))
        if len(sums) < 2:
            raise MethodError(_too_few(sums, fed.failures))
        moments = {k: reply.moments for k, reply in sums.items()}

        def others(trust: Mapping[ClientId, float]) -> dict[ClientId, Payload]:
            found = discriminants_of_others(moments, trust)
            return {k: {"references": vars(each)} for k, each in found.items() if k not in fed.failures}

        def ask(
            trust: Mapping[ClientId, float], temperature: Temperature, belief: Belief
        ) -> dict[ClientId, NoiseRate | None]:
            each = others(trust)
            told = {"temperature": asdict(temperature), "belief": belief.name, "most": most_for_judging(len(sums))}
            return {k: reply.noise_rate for k, reply in fed.ask(self.audit_judge, each, each=each, **told).items()}

        statistics = {k: reply.statistics for k, reply in sums.items()}
        per_feature = sum(reply.n_samples / reply.moments.sums.shape[1] for reply in sums.values())
        rates, belief = judge_each_other(ask, statistics, per_feature)
        split = split_by_noise_rates(rates, statistics, missing=dict(fed.failures))
        trust = {k: trust_of(split.noise_rates.get(k), is_noisy=k in split.noisy) for k in sums}
        temperature = self._refined(fed, others(trust), belief.guess, len(sums))
        verdicts = {k: verdict_of(split, k) for k in sums}
        probabilities = probability_noisy(split)
        each = others(trust)
        for k in each:
            likely = probabilities.get(k)
            each[k]["verdict"] = {
                "verdict": verdicts[k][0],
                "reason": verdicts[k][1],
                "probability": None if likely is None or math.isnan(likely) else likely,
                "is_rated": k in split.noise_rates,
            }
        common = {"temperature": temperature, "n_others": len(sums) - 1, "note": split.note, "min_cell": min_cell}
        counts = dict(fed.ask(self.audit_conclude, each, each=each, **common).items())
        if not counts:
            raise MethodError(f"No site could finish the audit. {_reasons(fed.failures)}.")
        verdicts |= {k: (VERDICTS[-1], why) for k, why in fed.failures.items()}
        return Outcome(sums, counts, verdicts, probabilities, dict(fed.failures), temperature, split.note)

    def _comparable(self, fed: Federation, replies: Mapping[ClientId, AuditSums]) -> dict[ClientId, AuditSums]:
        """Return the replies whose features are of one kind, that of most clients; the others are left out."""
        kinds = {k: (reply.network, reply.moments.sums.shape[1]) for k, reply in replies.items()}
        if not kinds:
            return {}
        usual, _ = Counter(kinds.values()).most_common(1)[0]
        for k, (network, n_features) in kinds.items():
            if n_features != usual[1]:
                fed.reject(k, f"its features have {n_features} numbers a sample, those of the others {usual[1]}")
            elif network != usual[0]:
                fed.reject(k, "its network has other weights than that of the others")
        return {k: replies[k] for k, kind in kinds.items() if kind == usual}

    def _refined(self, fed: Federation, each: Mapping[ClientId, Payload], temperature: float, n_clients: int) -> float:
        """Return the temperature that all labels together find likeliest."""
        near = temperatures_near(temperature)
        told = {"temperatures": near.tolist(), "most": most_for_refining(n_clients)}
        replies = fed.ask(self.audit_refine, each, each=each, **told)
        total = np.sum([np.zeros(len(near)), *(reply.by_temperature for reply in replies.values())], axis=0)
        return refined(temperature, lambda at: float(total[int(np.argmin(np.abs(near - at)))]))

    # ------------------------------------------------------------------ at the client

    @client_task
    def audit_describe(self, client: Client, min_class_samples: int) -> AuditSums:
        """Send sums of features by given label, and how alike classes are; asked of every site first."""
        features, given = _samples(client)
        if not np.isfinite(features).all():
            raise DataError("its features hold NaN or infinite values")
        n_classes = client.data.n_classes
        counts = np.bincount(given, minlength=n_classes)
        leaves = (counts >= min_class_samples)[given]
        directions = class_directions(class_features(features, given, n_classes), MIN_CLASS_SAMPLES)
        found = off_diagonal_stats(class_similarity(directions))
        mean, energy = (None if math.isnan(value) else value for value in (found.mean, found.energy))
        return AuditSums(
            on_the_wire(class_moments(features[leaves], given[leaves], n_classes)),
            mean,
            energy,
            found.n_usable_classes,
            len(given),
            int((counts > 0).sum()),
            self.config.network,
        )

    @client_task
    def audit_judge(
        self, client: Client, references: dict[str, Tensor], temperature: dict[str, float], belief: str, most: int
    ) -> Judged:
        """Estimate the share of wrong labels by what the others' classes look like; asked two to four times."""
        scores, given = _scores(client, references)
        return Judged(noise_rate(scores, given, Temperature(**temperature), BELIEFS[belief], most))

    @client_task
    def audit_refine(
        self, client: Client, references: dict[str, Tensor], temperatures: list[float], most: int
    ) -> AuditLikelihoods:
        """Say how likely the given labels are by how far scores are trusted; asked once, when verdicts are known."""
        scores, given = _scores(client, references)
        return AuditLikelihoods(log_likelihood(scores, given, np.array(temperatures), most))

    @client_task
    def audit_conclude(
        self,
        client: Client,
        references: dict[str, Tensor],
        temperature: float,
        verdict: dict[str, Any],
        n_others: int,
        note: str,
        min_cell: int,
    ) -> AuditCounts:
        """Weigh every label, keep the list, and send counts; asked last."""
        scores, given = _scores(client, references)
        posterior = weighed(scores, given, temperature)
        found = Findings.of(given, posterior)
        is_rated = verdict["is_rated"] and posterior.noise_rate is not None
        interval = rate_interval(posterior, given) if is_rated else None
        client.state["audit"] = {
            **{name: torch.from_numpy(column) for name, column in vars(found).items()},
            "interval": None if interval is None else asdict(interval),
            "about": {**verdict, "n_others": n_others, "note": note, "temperature": temperature},
        }
        return _counts(found, given, interval, max(min_cell, SMALLEST_CELL), client.data.n_classes)


def verdict_of(split: ClientSplit, client: ClientId) -> tuple[str, str]:
    """Return a client's verdict, and the reason of one that was not assessed."""
    if client in split.not_assessed:
        return "not assessed", split.not_assessed[client]
    return ("noisy" if client in split.noisy else "clean"), ""


def _samples(client: Client) -> tuple[Features, Labels]:
    return client.data.images.flatten(1).numpy(), client.data.labels.numpy()


def _scores(client: Client, references: dict[str, Tensor]) -> tuple[Array, Labels]:
    features, given = _samples(client)
    return discriminant_scores(features, discriminant_in(references)), given


def _counts(
    found: Findings, given: Labels, interval: RateInterval | None, min_cell: int, n_classes: int
) -> AuditCounts:
    """Return what may leave of a client's findings, small counts hidden."""
    cells = found.cells(given)
    confusion = np.zeros((n_classes, n_classes), np.int64)
    for (one, other, _), count in zip(cells, shown_together([n for _, _, n in cells], min_cell), strict=True):
        confusion[one, other] = count if isinstance(count, int) else WITHHELD if count == HIDDEN else SMALL
    n_suspicious = shown(sum(count for _, _, count in cells), min_cell)
    return AuditCounts(
        suspicious=n_suspicious if isinstance(n_suspicious, int) else SMALL,
        confusion=confusion,
        judged=found.part_judged(),
        noise_rate=None if interval is None else interval.rate,
        noise_rate_low=None if interval is None else interval.low,
        noise_rate_high=None if interval is None else interval.high,
        probability_noisy=None if interval is None else interval.probability_noisy,
    )


def _too_few(sums: Mapping[ClientId, AuditSums], failures: Mapping[ClientId, str]) -> str:
    there = f"only {next(iter(sums))} can be audited" if sums else "no site can be audited"
    return f"An audit compares sites, so it needs two; {there}. {_reasons(failures)}.".replace(". .", ".")


def _reasons(failures: Mapping[ClientId, str]) -> str:
    return "; ".join(f"{k} was left out: {why}" for k, why in sorted(failures.items()))
