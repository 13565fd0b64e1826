"""What a receiver may do to the next event on the same connection, or to the worker that reads its answer."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import pytest

from simpleworkflow.sinks.http import WebhookSink
from simpleworkflow.sinks.http1 import BrokenAnswer, _read_head

from .made import event, reason, story
from .receiver import OK, Receiver, answer


@pytest.mark.parametrize(
    "unasked",
    [OK, b"{}", answer("408 Request Timeout", "connection: close")],
    ids=["a second answer", "the rest of a body", "a farewell"],
)
async def test_bytes_that_nobody_asked_for_are_no_answer_to_the_next_event(receiver: Receiver, unasked: bytes) -> None:
    receiver.next.extend([OK + unasked, answer("500 Oops")])
    sink, given = WebhookSink(receiver.url(), allow=("127.0.0.1",), allow_http=True), story(2)
    answers = await sink.publish(given)
    await sink.close()
    assert answers[0] is None
    assert "500" in reason(answers[1]), "it was judged by what had come before it was sent"
    assert [got.headers["webhook-id"] for got in receiver.received] == [one.id for one in given]
    assert receiver.connections == 2


async def test_an_answer_before_the_request_was_read_costs_the_connection() -> None:
    writers: list[asyncio.StreamWriter] = []

    async def hasty(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)  # and no more is read: what followed on this connection would wait for ever

    server = await asyncio.start_server(hasty, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    sink = WebhookSink(f"http://127.0.0.1:{port}/", allow=("127.0.0.1",), allow_http=True, timeout=1)
    run, large = event().run_id, '"' + "x" * 20_000_000 + '"'
    assert await sink.publish([event(sequence, run=run, data=large) for sequence in (1, 2)]) == [None, None]
    await sink.close()
    assert len(writers) == 2
    for writer in writers:
        writer.transport.abort()
    server.close()


@pytest.mark.parametrize(
    "line",
    [b"a:" + b" " * 30_000 + b"\n", b"a: x" + b" " * 30_000 + b"x", b"a" * 30_000, b"a:" + b"\t " * 15_000],
    ids=["blanks and a bare line end", "blanks inside", "no colon", "nothing but blanks"],
)
def test_no_header_keeps_the_worker_busy(line: bytes) -> None:
    started = time.monotonic()
    with suppress(BrokenAnswer):
        _read_head(b"HTTP/1.1 200 OK\r\n" + line + b"\r\n\r\n")
    assert time.monotonic() - started < 0.5
