"""Events as lines: on standard output and at the end of a file that others rotate, truncate and fill up."""

from __future__ import annotations

import asyncio
import io
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from simpleworkflow.model.errors import InvalidURL
from simpleworkflow.sinks.lines import LinesSink
from simpleworkflow.sinks.protocol import SinkGone

from .made import event, reason, story


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_each_event_is_one_line_whatever_its_data(tmp_path: Path) -> None:
    sink = LinesSink(tmp_path / "events.jsonl")
    given = [event(data='{\n  "a": 1,\r\n  "b": "x\\ny"\n}'), event(data='"\u2028"'), event()]
    assert await sink.publish(given) == [None, None, None]
    await sink.close()
    written = (tmp_path / "events.jsonl").read_bytes().split(b"\n")
    assert len(written) == 4
    assert written[-1] == b""
    assert [json.loads(line)["data"] for line in written[:-1]] == [{"a": 1, "b": "x\ny"}, "\u2028", {"total": 5}]


async def test_a_file_is_appended_to_by_the_next_start(tmp_path: Path) -> None:
    for _ in range(2):
        sink = LinesSink(tmp_path / "events.jsonl", fsync=False)
        await sink.publish(story(3))
        await sink.close()
    assert [line["data"] for line in lines(tmp_path / "events.jsonl")] == [1, 2, 3, 1, 2, 3]


async def test_after_a_rotation_the_new_file_gets_the_lines(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    sink = LinesSink(path)
    await sink.publish([event(1)])
    path.rename(tmp_path / "events.1.jsonl")
    await sink.publish([event(2)])  # nobody has made the new file
    path.rename(tmp_path / "events.2.jsonl")
    path.touch()
    await sink.publish([event(3)])  # somebody has
    await sink.close()
    names = ("events.1.jsonl", "events.2.jsonl", "events.jsonl")
    assert [[line["sequence"] for line in lines(tmp_path / name)] for name in names] == [
        ["0000000001"],
        ["0000000002"],
        ["0000000003"],
    ]


async def test_a_torn_line_stays_alone(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"specversion": "1.')
    sink = LinesSink(path)
    await sink.publish([event()])
    await sink.close()
    torn, whole = path.read_text().splitlines()
    assert torn == '{"specversion": "1.'
    assert json.loads(whole)["type"] == "order.paid"


async def test_a_disk_that_is_full_refuses_and_names_the_place() -> None:
    sink = LinesSink("/dev/full")
    answers = await sink.publish(story(2))
    assert reason(answers[0]) == "/dev/full cannot be written: No space left on device"
    assert reason(answers[1])
    await sink.close()


async def test_after_a_full_disk_the_half_line_stays_alone_however_often_it_was_tried(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    sink = LinesSink(path)
    assert await sink.publish([event(1)]) == [None]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 40, hard))  # no room for even a line end then
    try:
        refused = [(await sink.publish([event(2)]))[0] for _ in range(2)]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert all("File too large" in reason(one) for one in refused)
    assert await sink.publish([event(3)]) == [None]
    await sink.close()
    first, torn, whole = path.read_text().splitlines()
    assert [json.loads(line)["sequence"] for line in (first, whole)] == ["0000000001", "0000000003"]
    assert len(torn) == 40


async def test_half_a_line_of_another_writer_stays_alone_too(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    sink = LinesSink(path)
    await sink.publish([event(1)])
    with path.open("a") as killed:
        killed.write('{"specversion": "1.')
    await sink.publish([event(2)])
    await sink.close()
    assert json.loads(path.read_text().splitlines()[-1])["sequence"] == "0000000002"


async def test_a_named_pipe_takes_lines_although_it_has_no_disk(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reading = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    sink = LinesSink(tmp_path / "pipe")
    assert await sink.publish([event()]) == [None]
    await sink.close()
    assert json.loads(os.read(reading, 10_000))["type"] == "order.paid"
    os.close(reading)


async def test_a_folder_that_vanishes_refuses_and_its_return_heals(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    sink = LinesSink(folder / "events.jsonl")
    await sink.publish([event()])
    folder.rename(tmp_path / "away")
    assert "No such file" in reason((await sink.publish([event()]))[0])
    (tmp_path / "away").rename(folder)
    assert await sink.publish([event()]) == [None]
    await sink.close()


async def test_calls_at_the_same_time_do_not_mix_their_lines(tmp_path: Path) -> None:
    sink = LinesSink(tmp_path / "events.jsonl")
    stories = [story(20) for _ in range(5)]
    await asyncio.gather(*map(sink.publish, stories))
    await sink.close()
    written = lines(tmp_path / "events.jsonl")
    for one in stories:
        assert [line["data"] for line in written if line["subject"] == str(one[0].run_id)] == list(range(1, 21))


def test_a_path_that_cannot_be_a_file_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidURL, match="is a folder"):
        LinesSink(tmp_path)
    with pytest.raises(InvalidURL, match="there is no folder"):
        LinesSink(tmp_path / "nowhere" / "events.jsonl")


PRINTING = """
import asyncio, sys
sys.path.insert(0, {tests!r})
from sinks.made import event
from simpleworkflow.sinks.lines import LinesSink
print("before")
answers = asyncio.run(LinesSink().publish([event(data='"\\u00e9\\u20ac"')]))
print([answer and answer.reason for answer in answers], file=sys.stderr)
"""


def test_standard_output_is_utf8_in_any_language_and_in_order() -> None:
    code = PRINTING.format(tests=str(Path(__file__).parents[1]))
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, timeout=30)
    first, second = done.stdout.splitlines()
    assert first == b"before"
    assert json.loads(second)["data"] == "é€"


def test_a_closed_pipe_on_standard_output_is_told_for_good_and_leaves_nothing_unsaid() -> None:
    code = PRINTING.format(tests=str(Path(__file__).parents[1]))
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, "-u", "-c", code.replace('print("before")', "")],
                          stdout=writing, stderr=subprocess.PIPE, timeout=30)  # fmt: skip
    os.close(writing)
    assert done.stderr.splitlines()[-1].startswith(b"simpleworkflow.sinks.protocol.SinkGone: nobody reads standard")


async def test_a_program_without_standard_output_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(SinkGone, match="there is no standard output"):
        await LinesSink().publish([event()])


STUCK = """
import asyncio, sys
sys.path.insert(0, {tests!r})
from sinks.made import event
from simpleworkflow.sinks.lines import LinesSink
async def main():
    sink = LinesSink({path!r})
    try:
        async with asyncio.timeout(0.2):
            await sink.publish([event(data='"' + "x" * 200_000 + '"')])
    except TimeoutError:
        await sink.close()
        print("stuck", file=sys.stderr)
asyncio.run(main())
"""


@pytest.mark.parametrize("kind", ["standard output", "a named pipe"])
def test_a_reader_that_sleeps_does_not_keep_the_program_from_ending(kind: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    asleep = os.open(tmp_path / "pipe", os.O_RDWR)
    path = None if kind == "standard output" else str(tmp_path / "pipe")
    code = STUCK.format(tests=str(Path(__file__).parents[1]), path=path)
    done = subprocess.run([sys.executable, "-c", code], stdout=asleep, stderr=subprocess.PIPE, timeout=20)
    os.close(asleep)
    assert (done.returncode, done.stderr) == (0, b"stuck\n")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def test_a_terminal_gets_no_character_that_it_would_obey(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    await LinesSink().publish([event(data='"\x9b31m\u202e"')])
    assert screen.getvalue().rstrip("\n").isprintable()
    assert json.loads(screen.getvalue())["data"] == "\x9b31m\u202e"
