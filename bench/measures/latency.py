"""How long an idle worker takes to notice: from the trigger to the handler's start, and to the result.

The clock starts before the call and stops in the handler, in another process; jobs come one at a time, 25 to 60 ms
apart. Peers that poll do so as often as their documented settings allow; the processor time that an idle worker used
is recorded beside its figure, because asking every millisecond, as pgqrs does, is quick and never at rest. The best
peer of this very run carries the bar on the median, whatever its quickness costs.

Three rounds of everybody say who that is. Then ours sits down with the best of them and they take turns of half a
second (`peers/sitting.py`), because the two are closer to each other than one minute of this machine is to the next.
Ours rests until it is told, its default; at the same table the same worker sits once more with `poll_every` at five
milliseconds, to tell what being awake is worth, and that is held against the same bar. The 99th percentile is of all
samples of the rounds, where nobody is stopped and nothing left out, and only reported: on a shared machine it is mostly
the machine's.
The way back, until the result is in the caller's hands, is measured in the same rounds for those whose jobs have
results: dbos, absurd and ours.
"""

from __future__ import annotations

import statistics
from typing import Any

from ground import Ground
from judging import OURS, Bar, Finding
from peers.driving import AWAKE_SECONDS, OURS_AWAKE, absent_from, best, finding, rounds
from peers.sitting import sit, sitting_finding

OUR_SAMPLES, SAMPLES, QUICK_SAMPLES = 170, 80, 15
ROUNDS = 3
WITH_RESULTS = ("absurd", "dbos")
PEERS = ("pgqrs", "pgqueuer", "procrastinate", "absurd", "dbos")
QUICK_PEERS = ("pgqrs", "pgqueuer")
SITTINGS, QUICK_SITTINGS = 7, 3
TURNS, QUICK_TURNS = 20, 3
CEILING = Bar(at_most=1.1)


def measure(ground: Ground) -> list[Finding]:
    peers = QUICK_PEERS if ground.quick else PEERS
    samples = dict.fromkeys((OURS, *peers), QUICK_SAMPLES if ground.quick else SAMPLES)
    if not ground.quick:
        samples[OURS] = OUR_SAMPLES
    found = rounds(ground, "latency", samples, dict.fromkeys(samples, ROUNDS))
    first = best(found, peers, figure="start_p50_ms", lowest=True)
    findings = against(ground, first, absent_from(found, PEERS)) if first else []
    for peer in peers:
        if peer != first:
            key, title = f"latency.start.{peer}", f"idle latency, trigger to start, p50, against {peer}"
            findings += finding(found, peer, key=key, title=title, unit="ms", figure="start_p50_ms")
    findings += [tail(found, "start", who) for who in samples if who in found[0]]
    for peer in (peer for peer in WITH_RESULTS if peer in found[0]):
        key, title = f"latency.result.{peer}", f"idle latency, trigger to result, p50, against {peer}"
        findings += finding(found, peer, key=key, title=title, unit="ms", figure="result_p50_ms")
    return findings + [tail(found, "result", who) for who in (OURS, *WITH_RESULTS) if who in found[0]]


def against(ground: Ground, first: str, absent: tuple[str, ...]) -> list[Finding]:
    """At one table with the best of the peers, every second time the other way round."""
    everyone = (OURS, first, OURS_AWAKE)
    turns, times = (QUICK_TURNS, QUICK_SITTINGS) if ground.quick else (TURNS, SITTINGS)
    sittings = [sit(ground, everyone[:: -1 if nth % 2 else 1], turns) for nth in range(times)]
    title = f"idle latency, trigger to start, p50, against {first}"
    often = f"ours with a poll_every of {AWAKE_SECONDS * 1_000:g} ms"
    return [
        sitting_finding(sittings, who, first, key=key, title=f"{title}, {words}", bar=CEILING, absent=absent)
        for who, key, words in (
            (OURS, "latency.start.best", "the best of them"),
            (OURS_AWAKE, "latency.start.awake", often),
        )
    ]


def tail(found: list[dict[str, Any]], what: str, who: str) -> Finding:
    """The 99th percentile of all samples of one."""
    samples = [sample for one in found for sample in one[who][f"{what}_ms"]]
    rounds = tuple(one[who][f"{what}_p99_ms"] for one in found)
    title = f"idle latency, trigger to {what}, p99 of {len(samples)} samples, {who}"
    detail = {"samples": len(samples), "p50_ms": statistics.median(samples)}
    return Finding(f"latency.{what}.p99.{who}", title, "ms", p99(samples), None, rounds, detail=detail)


def p99(samples: list[float]) -> float:
    return statistics.quantiles(samples, n=100, method="inclusive")[98]
