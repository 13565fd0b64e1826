r"""The ceiling: pgbench working off runs with our own SQL, and nothing of Python in between.

The script is claim, `\gset`, settle. pgbench can take one row of plain values from a statement, so the claim's answer
is wrapped: its last part becomes one more WITH query, and a SELECT over that gathers ids and epochs into two arrays,
and tells when the last of them was due: from there the next claim goes on, as ours do.
All other values are pgbench variables (-D), and with -M prepared every one of them is a bind parameter, as with us. The
settle's constants are arrays of a hundred; a shorter claim leaves their rest without a run id, which matches nothing.

The danger is a fast figure for work not done. So the number of transactions is fixed by the number of runs, and
`finished` must afterwards find every run succeeded with all of its four events.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import tempfile
from pathlib import Path

import psycopg
from hot import BATCH, SESSION, Moved, claim, claim_values, literal, settle, settle_columns, settle_values

EVENTS = ("created", "leased", "started", "succeeded")
SECONDS = 600
_BROUGHT = {"run_id": "ids", "epoch": "epochs"}
"""Columns of the settle that are filled from the claim, and the names that the wrapped claim gives them."""
_LOW, _FIRST = "low", "-infinity"
_MAIN = re.compile(r"\b(SELECT|INSERT|UPDATE|DELETE)\b", re.IGNORECASE)


class NotDone(Exception):
    """The work was not done, so there is no figure."""


def drain(bin_dir: Path, url: str, runs: int, clients: int) -> tuple[float, float]:
    """The seconds by pgbench's own clock, and its processor time; the runs must have been triggered already."""
    if runs % (BATCH * clients):
        raise ValueError(f"{runs} runs are not whole batches of {BATCH} for {clients} clients")
    transactions = runs // BATCH // clients
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "drain.sql"
        script.write_text(drain_script())
        options = ["-n", "-M", "prepared", "-f", str(script), "-t", str(transactions), "-c", str(clients)]
        options += ["-j", str(clients)]
        for name, value in variables().items():
            options += ["-D", f"{name}={value}"]
        before = _used_by_children()
        told = _run([str(bin_dir / "pgbench"), *options, url])
        used = _used_by_children() - before
    finished(url, runs)
    return transactions * clients / _tps(told, transactions * clients), used


def drain_script() -> str:
    """One transaction of pgbench's: a claim and the settle of what it brought."""
    brought = {place: f":{_BROUGHT[column]}" for place, (column, _) in _settled() if column in _BROUGHT}
    places = enumerate(claim_values(_LOW), start=1)
    others = {place: f":{_LOW}" if value == _LOW else "NULL" for place, value in places if value in (None, _LOW)}
    claiming = wrapped(_named(claim().for_one, "claim", others))
    return f"{claiming}\n\\gset\n{_named(settle().text, 'settle', brought)};\n"


def wrapped(text: str) -> str:
    """The same statement, answering with one row: the ids and the epochs, in the order in which we settle."""
    answer = (
        "SELECT coalesce(array_agg(id ORDER BY id), '{}')::text AS ids,\n"
        "       coalesce(array_agg(epoch ORDER BY id), '{}')::text AS epochs,\n"
        f"       coalesce(max(run_at), '{_FIRST}')::text AS {_LOW}\nFROM answer"
    )
    start = main_part(text)
    if start == 0:
        return f"WITH answer AS (\n{text})\n{answer}"
    head = text[:start].rstrip()
    if not head.endswith(")"):
        raise Moved(f"no WITH query ends before the main part: …{head[-60:]}")
    return f"{head},\nanswer AS (\n{text[start:]})\n{answer}"


def main_part(text: str) -> int:
    """Where the WITH queries end and the statement itself begins: the first verb outside of all parentheses."""
    depth, quoted, outside = 0, False, []
    for character in text:
        if character == "'":
            quoted = not quoted
        elif not quoted:
            depth += {"(": 1, ")": -1}.get(character, 0)
        outside.append(character if depth == 0 and not quoted else " ")
    found = _MAIN.search("".join(outside))
    if depth or quoted or found is None:
        raise Moved(f"cannot find the main part of: {text[:80]}…")
    return found.start()


def variables() -> dict[str, str]:
    """Every bound value but the two that the claim brings, by the names that `_named` gave them."""
    claimed = enumerate(claim_values(), start=1)
    values = {_LOW: _FIRST} | {f"claim_{place}": str(value) for place, value in claimed if value is not None}
    *arrays, worker, telling = settle_values([None] * BATCH, [None] * BATCH)
    values |= {f"settle_{len(arrays) + 1}": worker, f"settle_{len(arrays) + 2}": str(telling).lower()}
    for (place, (column, _)), array in zip(_settled(), arrays, strict=True):
        if column not in _BROUGHT:
            values[f"settle_{place}"] = literal(array)
    return values


def _settled() -> list[tuple[int, tuple[str, str]]]:
    """The columns of the settle, with their places."""
    return list(enumerate(settle_columns(), start=1))


def _named(text: str, prefix: str, others: dict[int, str]) -> str:
    """Our placeholders as pgbench variables, but for those that have other names: `\\gset` gives some, and nothing has
    none."""
    if re.search(r"(?<!:):(?!:)", text):
        raise Moved(f"the {prefix} has a lone colon, which pgbench would take for a variable")
    return re.sub(r"\$(\d+)", lambda m: others.get(int(m[1]), f":{prefix}_{m[1]}"), text)


def finished(url: str, runs: int) -> None:
    """Every run succeeded, and its whole story is in the audit trail."""
    with psycopg.connect(url, autocommit=True) as connection:
        states = connection.execute("SELECT status, count(*) FROM workflow.workflow_run GROUP BY 1").fetchall()
        events = connection.execute("SELECT event_type, count(*) FROM workflow.workflow_event GROUP BY 1").fetchall()
    if dict(states) != {"succeeded": runs} or dict(events) != dict.fromkeys(EVENTS, runs):
        raise NotDone(f"{runs} runs were to be done; there are {dict(states)} with {dict(events)}")


def _run(command: list[str]) -> str:
    session = " ".join(f"-c {name}={value}" for name, value in SESSION.items())
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    environment |= {"PGOPTIONS": session, "LC_ALL": "C"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False, env=environment)
    if done.returncode != 0:
        raise NotDone(f"pgbench ended with {done.returncode}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def _used_by_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _tps(told: str, transactions: int) -> float:
    processed = re.search(r"actually processed: (\d+)/(\d+)", told)
    tps = re.search(r"^tps = ([\d.]+) \(without initial connection time\)", told, re.MULTILINE)
    if processed is None or tps is None or int(processed[1]) != transactions:
        raise NotDone(f"{transactions} transactions were asked of pgbench: {told}")
    return float(tps[1])
