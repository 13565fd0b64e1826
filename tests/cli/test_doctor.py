"""`simpleworkflow doctor` as an operator meets it: real processes, with and without a terminal, and its exit codes."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.ledger import Raw

import simpleworkflow as swf
from simpleworkflow.client.doctor.file import judge_version
from simpleworkflow.store.drivers.sqlite import sqlite3

COMMAND = [sys.executable, "-m", "simpleworkflow", "doctor"]
MODULE = """
import simpleworkflow as swf
app = swf.App()

@app.workflow("shop.ship.v1")
async def ship(ctx: swf.Context) -> None: ...
"""


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in {"SIMPLEWORKFLOW_URL", "COLUMNS"}}
    return {**kept, **more}


def run(*arguments: str, cwd: Path | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment(**more),
        timeout=60,
        check=False,
    )


def triggered(url: str, type: str = "shop.ship.v1") -> None:
    app = swf.App(url)
    app.sync.trigger(type)
    app.sync.close()


HEALTHY = {
    "postgres": """\
✓ database            URL answered within N ms
✓ migrations          all N are applied
✓ tables              all N are there, and N indexes, triggers and the like with them
✓ privileges          this role may read and write our tables
✓ version             PostgreSQL VERSION
✓ durability          fsync on, full_page_writes on, synchronous_commit on
✓ clock               the server's clock and this host's agree within Nms
✓ connections         N of N of the server are taken
✓ hints               a hint arrived within N ms
✓ snapshots           nothing older than Nm holds vacuum back
✓ wraparound          the oldest unfrozen row is N transactions old
✓ vacuum              autovacuum is on; N dead rows in our tables
""",
    "sqlite": """\
✓ database            SQLite, URL
✓ migrations          all N are applied
✓ tables              all N are there, and N indexes, triggers and the like with them
VERSION
✓ durability          journal_mode wal, synchronous full
✓ clock               the host's clock is the database's
✓ hints               a hint arrived within N ms
✓ file-system         a local one (KIND)
✓ disk-space          N GiB are free where URL lies
✓ log                 the write-ahead log has N bytes
""",
}
WORK = """\
· workers             no worker is alive
                      fix: simpleworkflow worker MODULE:APP --url URL
✓ silent-workers      none went without a goodbye in the last N days
✓ unserved-types      no due run waits for a worker that is not there
✓ overdue-runs        no served run has been due for longer than Ns
✓ expired-leases      every lease that ran out has been taken back
✓ deadlines           no open run is past its deadline
✓ held-runs           none
✓ crashed-runs        no waiting run has taken its worker down
✓ schedules           N schedules, none late or broken
✓ outbox              N events on the way, none late
"""


def plain(output: str, url: str) -> str:
    """The output with everything that differs from day to day taken out."""
    output = output.replace(url, "URL")
    output = re.sub(r"PostgreSQL [^\n]+", "PostgreSQL VERSION", output)
    output = re.sub(r". version             SQLite[^\n]*(\n +fix: [^\n]*)?", "VERSION", output)
    output = re.sub(r"a local one \(\w+\)", "a local one (KIND)", output)
    return re.sub(r"\d[\d,.]*", "N", output)


def test_a_healthy_database_is_told_line_by_line_and_the_exit_code_is_0(well: str, backend: str) -> None:
    done = run("--url", well)
    assert (done.returncode, done.stderr) == (0, "")
    shown = plain(done.stdout, well)
    assert shown.startswith(HEALTHY[backend] + WORK + "· size                ")
    assert "\x1b" not in done.stdout
    warned = backend == "sqlite" and judge_version(sqlite3.sqlite_version).level == "warning"
    assert shown.splitlines()[-1] == ("N warning, N notes" if warned else "N notes")


def test_a_problem_ends_with_code_1_and_its_fix_beneath_it(well: str) -> None:
    triggered(well)
    done = run(SIMPLEWORKFLOW_URL=well)
    assert done.returncode == 1
    found = re.search(r"^✗ unserved-types +(.*)\n +fix: (.*)$", done.stdout, re.MULTILINE)
    assert found is not None, done.stdout
    assert found[1].startswith("no live worker serves shop.ship.v1: 1 run due for up to ")
    assert found[2].endswith(f"simpleworkflow worker MODULE:APP --url {well}")
    assert done.stdout.splitlines()[-1].startswith("1 problem")


def test_json_is_one_finding_per_line_and_nothing_else(well: str) -> None:
    triggered(well)
    done = run("--url", well, "--json")
    assert (done.returncode, done.stderr) == (1, "")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(set(one) == {"check", "level", "seen", "fix", "subject"} for one in found)
    (bad,) = [one for one in found if one["level"] == "problem"]
    assert (bad["check"], bad["subject"]) == ("unserved-types", "shop.ship.v1")


def test_warnings_count_when_strict_and_only_then(well: str, backend: str) -> None:
    raw = Raw(well)
    raw.sql("INSERT INTO workflow.schema_migrations (version, checksum, applied_at) VALUES ('9999', 'x', 'then')")
    raw.close()
    assert run("--url", well).returncode == 0
    assert run("--url", well, "--strict").returncode == 1


def test_a_module_lends_its_settings_and_its_name_to_the_fixes(well: str, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(MODULE)
    triggered(well)
    triggered(well, "other.thing.v1")
    done = run("--module", "shop:app", "--url", well, cwd=tmp_path)
    assert done.returncode == 1
    assert f"simpleworkflow worker shop:app --url {well}" in done.stdout
    assert "shop:app has no workflow other.thing.v1 either" in done.stdout
    without_url = run("--module", "shop:app", cwd=tmp_path, SIMPLEWORKFLOW_URL=well)
    assert plain(without_url.stdout, well).splitlines()[-1] == plain(done.stdout, well).splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--url", "mysql://x"], "mysql:// is not a database"),
        (["--module", "no.such:app"], "there is no module 'no.such'"),
        (["--module", "a b"], "is not a module"),
        (["extra"], "unexpected extra argument"),
    ],
)
def test_a_wrong_call_ends_with_code_2_and_no_traceback(arguments: list[str], says: str, tmp_path: Path) -> None:
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_database_that_is_not_there_is_a_finding_and_no_traceback(tmp_path: Path) -> None:
    done = run("--url", "none.db", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("✗ database            there is no file none.db\n")
    done = run("--json", "--url", "postgresql://ada:s3cret@127.0.0.1:1/orders", cwd=tmp_path)
    assert done.returncode == 1
    (found,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert found["level"] == "problem"
    assert "s3cret" not in done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []


def test_names_from_the_database_cannot_command_the_terminal(well: str) -> None:
    raw = Raw(well)
    raw.sql(
        "INSERT INTO workflow.workflow_worker (id, name, host, pid, spans, started_at, seen_at) "
        f"VALUES ('w', ?, ?, 1, '[]', {raw.now}, {raw.now})",
        "\x1b[2Jgone [red]not a style[/red]",
        "host\nnext",
    )
    raw.close()
    done = run("--url", well)
    assert "\x1b" not in done.stdout
    assert r"1 worker alive: \x1b[2Jgone [red]not a style[/red] on host\nnext" in done.stdout


def test_a_plain_terminal_gets_plain_marks(well: str) -> None:
    triggered(well)
    done = run("--url", well, PYTHONIOENCODING="ascii")
    assert done.returncode == 1
    assert re.search(r"^X unserved-types ", done.stdout, re.MULTILINE)
    assert re.search(r"^\+ migrations ", done.stdout, re.MULTILINE)


def test_on_a_terminal_marks_are_coloured_and_sentences_wrapped_but_no_fix(well: str) -> None:
    triggered(well)
    master, slave = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, "--url", well], stdout=slave, stderr=slave, env=environment(COLUMNS="60", TERM="xterm")
    ) as process:
        os.close(slave)
        shown = b""
        try:
            while block := os.read(master, 65536):
                shown += block
        except OSError:
            pass  # the other end is closed
        assert process.wait(30) == 1
    os.close(master)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode()).replace("\r", "")
    assert "\x1b[" in shown.decode()
    assert f"simpleworkflow worker MODULE:APP --url {well}\n" in text
    assert re.search(r"^✗ unserved-types +no live worker serves shop.ship.v1: 1\n {22}run due", text, re.MULTILINE), (
        text
    )
