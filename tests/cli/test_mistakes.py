"""What people do wrong, and strange places to run in: one sentence and the right exit code, never a traceback."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import UUID

import pytest
from support.command import COMMAND, environment
from support.terminal import Terminal, command
from support.waiting import until

import simpleworkflow as swf

DEEP = "[" * 300 + "]" * 300
BROKEN = {
    "syntax.py": "def half(:\n",
    "divides.py": "import simpleworkflow as swf\n\ndef ratio():\n    return 1 / 0\n\napp = swf.App(str(ratio()))\n",
    "leaves.py": "import sys\n\nsys.exit('no configuration')\n",
    "leaves_quietly.py": "raise SystemExit(0)\n",
}


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A SQLite file of ours: these mistakes are the same on every database."""
    app = swf.App(str(tmp_path / "test.db"))
    app.sync.doctor.check()
    app.sync.close()
    return str(tmp_path / "test.db")


def ask(
    *arguments: str | bytes, url: str | None = None, cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    words: Sequence[str | bytes] = [*COMMAND, *arguments]
    return subprocess.run(
        words, env=environment(url, **variables), cwd=cwd, capture_output=True, text=True, timeout=60, check=False
    )


def assert_sentence(done: subprocess.CompletedProcess[str], code: int, sentence: str) -> None:
    """Told in one sentence; click puts its usage before its own."""
    assert "Traceback" not in done.stderr, done.stderr
    assert sentence in " ".join(done.stderr.split()), done.stderr
    assert done.returncode == code
    assert sum(line.lower().startswith("error: ") for line in done.stderr.splitlines()) == 1


# What is called wrongly sends nothing: exit code 2.


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["trigger", "a.v1", '"a\\u0000b"'], "contains NUL"),
        (["trigger", "a.v1", "[18446744073709551616]"], "does not fit in signed 64 bits"),
        (["trigger", "a.v1", '"\\ud800"'], "not readable JSON"),
        (["trigger", "a.v1", DEEP], "deep"),
        (["trigger", "a.v1", "--key", ""], "idempotency key"),
        (["trigger", "a.v1", "--key", "k" * 256], "idempotency key"),
        (["trigger", "a.v1", "--max-attempts", "1001"], "1001 is not in the range"),
        (["trigger", "a.v1", "--max-attempts", "9" * 30], "is not in the range"),
        (["runs", "signal", "01900000", ""], "cannot name a signal"),
        (["runs", "signal", "01900000", "a#b"], "cannot name a signal"),
        (["runs", "signal", "01900000", "go", '"\\u0000"'], "contains NUL"),
        (["runs", "list", "--key", ""], "idempotency key"),
        (["runs", "list", "--type", "a b"], "workflow type"),
        (["runs", "list", "--limit", "9" * 20], "is not in the range"),
        (["events", "--since", "0001-01-01T00:00+23:00"], "lies outside of the years 1 to 9999"),
        (["trigger", "a.v1", "--at", "9999-12-31T23:00-23:00"], "lies outside of the years 1 to 9999"),
        (["top", "--interval", "nan"], "'nan' is not"),
        (["top", "--interval", "1ms"], "shorter than 100ms"),
        (["events", "--interval", "2h"], "longer than 1h"),
        (["migrate", "sql", "--dialect", "postgres", "--schema", "a b"], "schema 'a b' must be lower-case"),
    ],
)
def test_what_can_be_no_value_exits_with_2_and_sends_nothing(file: str, arguments: list[str], sentence: str) -> None:
    assert_sentence(ask(*arguments, url=file), 2, sentence)
    assert command("runs", "list", "--json", url=file).stdout == ""


def test_a_payload_that_is_too_large_exits_with_2(file: str, tmp_path: Path) -> None:
    (tmp_path / "large.json").write_text('"' + "x" * (17 * 1024 * 1024) + '"')
    assert_sentence(ask("trigger", "a.v1", "@large.json", url=file, cwd=tmp_path), 2, "PAYLOAD")


@pytest.mark.parametrize(
    "arguments",
    [
        ["runs", "list", "--key", b"\xff"],
        ["runs", "list", "--type", b"\xff"],
        ["trigger", "a.v1", b'"\xff"'],
        ["trigger", b"a\xff.v1"],
        ["runs", "cancel", b"\xff", "--reason", "why"],
    ],
)
def test_bytes_that_are_not_text_are_named(file: str, arguments: list[str | bytes]) -> None:
    assert_sentence(ask(*arguments, url=file), 2, "'\\xff' is not UTF-8" if len(arguments[-1]) == 1 else "not UTF-8")


def test_ids_on_standard_input_that_are_not_text_are_named(file: str) -> None:
    done = subprocess.run(
        [*COMMAND, "runs", "cancel", "-"], input=b"\xff\n", env=environment(file), capture_output=True, timeout=60
    )
    assert done.returncode == 2
    assert b"standard input is not UTF-8" in done.stderr


@pytest.mark.parametrize("arguments", [["runs", "list"], ["trigger", "a.v1"], ["workers"], ["migrate", "status"]])
def test_a_bad_address_in_the_environment_exits_with_2_and_says_whose_it_is(arguments: list[str]) -> None:
    assert_sentence(ask(*arguments, url="redis://h"), 2, "SIMPLEWORKFLOW_URL: redis:// is not a database")


@pytest.mark.parametrize("arguments", [["runs", "list"], ["trigger", "a.v1"], ["workers"], ["top", "--once"]])
@pytest.mark.parametrize("spelled", [":memory:", "sqlite://"])
def test_memory_cannot_be_looked_into_from_outside(arguments: list[str], spelled: str) -> None:
    assert_sentence(ask(*arguments, "--url", spelled), 2, "memory belongs to the process that made it; name a file")


# Strange places.


@pytest.mark.parametrize("columns", ["", "abc", "0", "-5", "9" * 5_000, "²"])
def test_a_width_that_is_no_number_does_not_count(file: str, columns: str) -> None:
    command("trigger", "a.v1", url=file)
    done = ask("runs", "list", url=file, COLUMNS=columns)
    assert (done.returncode, done.stderr) == (0, "")
    assert "a.v1" in done.stdout


@pytest.mark.parametrize("arguments", [["runs", "list"], ["runs", "list", "--json"], ["--help"], ["events"]])
@pytest.mark.parametrize("to", [">&-", "> /dev/full"])
def test_an_output_that_takes_nothing_is_one_sentence(file: str, arguments: list[str], to: str) -> None:
    app = swf.App(file)
    app.sync.trigger("a.v1")
    app.sync.close()
    assert_sentence(shell(to, *arguments, url=file), 1, "standard output cannot be written")


@pytest.mark.parametrize("to", [">&-", "> /dev/full"])
def test_a_trigger_still_tells_the_id_when_nobody_takes_its_output(file: str, to: str) -> None:
    done = shell(to, "trigger", "a.v1", url=file)
    assert_sentence(done, 1, "standard output cannot be written")
    told = UUID(done.stderr.splitlines()[0].rpartition(" ")[2])
    app = swf.App(file)
    assert app.sync.get(told).type == "a.v1"
    app.sync.close()


def test_without_standard_error_a_command_still_does_its_work(file: str) -> None:
    done = shell("2>&-", "trigger", "a.v1", url=file)
    assert done.returncode == 0
    UUID(done.stdout.strip())


def shell(to: str, *arguments: str, url: str) -> subprocess.CompletedProcess[str]:
    words = ["sh", "-c", f'"$@" {to}', "sh", *COMMAND, *arguments]
    return subprocess.run(words, env=environment(url), capture_output=True, text=True, timeout=60, check=False)


# Modules of the user's own that cannot be loaded.


@pytest.fixture
def broken(tmp_path: Path) -> Iterator[Path]:
    for name, text in BROKEN.items():
        (tmp_path / name).write_text(text)
    yield tmp_path
    assert not list(tmp_path.glob("*.db"))


@pytest.mark.parametrize("arguments", [["worker"], ["doctor", "--module"]])
@pytest.mark.parametrize(
    ("module", "shown", "sentence"),
    [
        ("syntax", "def half(:", "syntax cannot be loaded: SyntaxError:"),
        ("divides", "return 1 / 0", "divides cannot be loaded: ZeroDivisionError: division by zero"),
        ("leaves", "sys.exit('no configuration')", "leaves ends the program while it is loaded: no configuration"),
        ("leaves_quietly", "raise SystemExit(0)", "leaves_quietly ends the program while it is loaded"),
    ],
)
def test_a_module_that_cannot_be_loaded_shows_its_own_lines_and_no_others(
    broken: Path, arguments: list[str], module: str, shown: str, sentence: str
) -> None:
    done = ask(*arguments, f"{module}:app", cwd=broken)
    assert done.returncode == 1
    assert shown in done.stderr
    *_, last = done.stderr.splitlines()
    assert last.startswith(f"error: {sentence}"), done.stderr
    files = {line.split('"')[1] for line in done.stderr.splitlines() if line.startswith('  File "')}
    assert files == {str(broken / f"{module}.py")}


def test_dev_tells_why_a_module_ended_the_program(broken: Path, tmp_path: Path) -> None:
    word = [*COMMAND, "dev", "leaves:app", "--url", "dev.db"]
    with (tmp_path / "err").open("wb") as err:
        process = subprocess.Popen(word, cwd=broken, env=environment(), stdout=subprocess.DEVNULL, stderr=err)
    try:
        until(lambda: "leaves ends" in (tmp_path / "err").read_text() or process.poll() is not None, "it is told")
        assert "leaves ends the program while it is loaded: no configuration" in (tmp_path / "err").read_text()
    finally:
        process.terminate()
        process.wait(30)


# Byte order marks, which some editors write.


def test_a_byte_order_mark_before_a_payload_is_no_part_of_it(file: str, tmp_path: Path) -> None:
    (tmp_path / "marked.json").write_bytes(b'\xef\xbb\xbf{"n": 1}')
    told = ask("trigger", "a.v1", "@marked.json", url=file, cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    with (tmp_path / "marked.json").open("rb") as marked:
        words = [*COMMAND, "trigger", "a.v1", "-"]
        piped = subprocess.run(words, stdin=marked, env=environment(file), capture_output=True, text=True, check=False)
    app = swf.App(file)
    assert [app.sync.get(one.stdout.strip()).payload for one in (told, piped)] == [{"n": 1}] * 2
    app.sync.close()


def test_nothing_that_was_asked_wrongly_made_a_file(tmp_path: Path) -> None:
    for arguments in (["runs", "list", "--limit", "-1"], ["trigger", "a b"], ["top", "--interval", "x"]):
        assert ask(*arguments, cwd=tmp_path).returncode == 2
    assert os.listdir(tmp_path) == []


# Words, and narrow places.


@pytest.mark.parametrize("width", [60, 80, 99])
def test_a_list_of_runs_fits_a_narrow_terminal(file: str, width: int) -> None:
    app = swf.App(file)
    run = app.sync.trigger("billing.invoices.monthly.v1")
    app.sync.cancel(app.sync.trigger("billing.invoices.monthly.v1").id, reason="a reason that is rather long")
    app.sync.close()
    shown = Terminal("runs", "list", url=file, width=width).end().text
    assert str(run.id)[:13] in shown, "ids are cut there"
    assert "cancelled" in shown
    assert max(map(len, shown.splitlines())) <= width
    assert "NOTE" in shown, "what an operator asks next stays as long as it can"


def test_a_run_that_was_cancelled_is_told_so_in_english(url: str) -> None:
    app = swf.App(url)
    app.sync.doctor.check()
    run = app.sync.trigger("a.v1").id
    app.sync.cancel(run)
    for refused in (lambda: app.sync.hold(run), lambda: app.sync.resume(run), lambda: app.sync.signal(run, "go")):
        with pytest.raises(swf.AlreadyFinished, match="was already cancelled; "):
            refused()
    app.sync.close()


def test_a_duration_without_a_unit_is_not_advised_again() -> None:
    with pytest.raises(swf.InvalidDuration) as refused:
        swf.Retry(initial="10")
    assert 'did you mean "10s"?' in str(refused.value)
    assert "30 (seconds)" not in str(refused.value)
