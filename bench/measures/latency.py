"""How long an idle worker takes to notice: from the trigger to the handler's start, and to the result.

The clock starts before the call and stops in the handler, in another process; jobs come one at a time, 25 to 60 ms
apart. Peers that poll do so as often as their documented settings allow; the processor time that an idle worker used
is recorded beside its figure, because asking every millisecond, as pgqrs does, is quick and never at rest. The best
peer of this very run carries the bar on the median, whatever its quickness costs. Ours rests until it is told, its
default; beside it the same worker runs once more with `poll_every` at five milliseconds, to tell what being awake is
worth, and that is held against the same bar. The 99th percentile is read off all samples together and only reported:
on a shared machine it is mostly the machine's. The way back, until `handle.result()` has returned, is measured for ours
alone.
"""

from __future__ import annotations

import statistics
from typing import Any

from ground import Ground
from judging import OURS, Bar, Finding, ratios
from peers.driving import AWAKE_SECONDS, OURS_AWAKE, best, finding, rounds

SAMPLES = 80
QUICK_SAMPLES = 25
PEERS = ("pgqrs", "pgqueuer", "procrastinate", "absurd", "dbos")
QUICK_PEERS = ("pgqrs", "pgqueuer")
ROUNDS = 3
CLOSE = dict.fromkeys((OURS, "pgqrs"), 25) | dict.fromkeys((OURS_AWAKE, "pgqueuer"), 7)
"""Rounds of those that are close to each other: three would leave the verdict to chance. Many short ones, because a
machine at rest has moods of some seconds."""
CEILING = Bar(at_most=1.1)


def measure(ground: Ground) -> list[Finding]:
    peers = QUICK_PEERS if ground.quick else PEERS
    neighbour, *others = peers
    everyone = (OURS, neighbour, OURS_AWAKE, *others)
    samples = dict.fromkeys(everyone, QUICK_SAMPLES if ground.quick else SAMPLES)
    found = rounds(ground, "latency", samples, dict.fromkeys(samples, ROUNDS) | ({} if ground.quick else CLOSE))
    first = best(found, peers, figure="start_p50_ms", lowest=True)
    findings: list[Finding] = []
    for peer in sorted(peers, key=lambda one: one != first):
        findings += finding(
            found,
            peer,
            key="latency.start.best" if peer == first else f"latency.start.{peer}",
            title=f"idle latency, trigger to start, p50, against {peer}"
            + (", the best of them" if peer == first else ""),
            unit="ms",
            figure="start_p50_ms",
            bar=CEILING if peer == first else None,
        )
    return findings + _awake(found, first) + _tail(found, first) + _results(found)


def _awake(found: list[dict[str, Any]], first: str | None) -> list[Finding]:
    """Both ask all the time."""
    if first is None:
        return []
    often = f"poll_every of {AWAKE_SECONDS * 1_000:g} ms"
    return finding(
        found,
        first,
        key="latency.start.awake",
        title=f"idle latency, trigger to start, p50, against {first}, ours with a {often}",
        unit="ms",
        figure="start_p50_ms",
        bar=CEILING,
        ours=OURS_AWAKE,
    )


def _tail(found: list[dict[str, Any]], first: str | None) -> list[Finding]:
    """The 99th percentile over the samples of all rounds; the ratios are those within a round."""
    if first is None:
        return []
    detail = {"peer": first, "samples": {who: len(_samples(found, who, "start_ms")) for who in (OURS, first)}}
    mine, theirs = (_p99(_samples(found, who, "start_ms")) for who in (OURS, first))
    both = [one for one in found if first in one]
    within = ratios(*([one[who]["start_p99_ms"] for one in both] for who in (OURS, first)))
    title = f"idle latency, trigger to start, p99, against {first}"
    return [Finding("latency.start.p99", title, "ms", mine, theirs, tuple(within), detail=detail)]


def _results(found: list[dict[str, Any]]) -> list[Finding]:
    medians = tuple(one[OURS]["result_p50_ms"] for one in found)
    samples = _samples(found, OURS, "result_ms")
    title = "idle latency, trigger to result, p50"
    detail = {"p99_ms": _p99(samples), "samples": len(samples)}
    return [Finding("latency.result", title, "ms", statistics.median(medians), None, medians, detail=detail)]


def _samples(found: list[dict[str, Any]], who: str, name: str) -> list[float]:
    return [sample for one in found if who in one for sample in one[who][name]]


def _p99(samples: list[float]) -> float:
    return statistics.quantiles(samples, n=100, method="inclusive")[98]
