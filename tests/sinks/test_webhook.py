"""Webhooks against a real server that answers in every way it can: what is taken, what is refused, what comes again."""

from __future__ import annotations

import asyncio
import base64
import re
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from standardwebhooks.webhooks import Webhook

from simpleworkflow.model.errors import InvalidPolicy
from simpleworkflow.sinks.by_run import EARLIER_REFUSED
from simpleworkflow.sinks.http import WebhookSink
from simpleworkflow.sinks.protocol import CloudEvent, Refusal

from .made import event, reason, story
from .receiver import OK, Receiver, answer

SECRETS = tuple(f"whsec_{base64.b64encode(letter * 24).decode()}" for letter in (b"a", b"b"))


def hook(receiver: Receiver, path: str = "/hook", **options: Any) -> WebhookSink:
    return WebhookSink(receiver.url(path), allow=("127.0.0.1",), allow_http=True, **options)


async def sent(sink: WebhookSink, *events: CloudEvent) -> list[Refusal | None]:
    try:
        return list(await sink.publish(events))
    finally:
        await sink.close()


# What is sent.


async def test_structured_mode_arrives_as_the_sdk_reads_it(receiver: Receiver) -> None:
    given = event(3, data='{"n": 10000000000000000000001}')
    assert await sent(hook(receiver, "/in/box?key=1"), given) == [None]
    (got,) = receiver.received
    assert got.line == "POST /in/box?key=1 HTTP/1.1"
    assert got.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert got.headers["user-agent"] == "simpleworkflow"
    parsed = from_http_event(HTTPMessage(got.headers, got.body))
    assert (parsed.get_id(), parsed.get_type(), parsed.get_subject()) == (given.id, given.type, str(given.run_id))
    assert parsed.get_data() == {"n": 10000000000000000000001}


async def test_binary_mode_arrives_as_the_sdk_reads_it(receiver: Receiver) -> None:
    given = event(3, source="/läden/1", data='{ "n" : 1.10 }')
    assert await sent(hook(receiver, mode="binary"), given) == [None]
    (got,) = receiver.received
    assert got.body == b'{ "n" : 1.10 }'
    parsed = from_http_event(HTTPMessage(got.headers, got.body))
    assert (parsed.get_source(), parsed.get_extension("sequence")) == ("/läden/1", "0000000003")


@pytest.mark.parametrize("mode", ["structured", "binary"])
async def test_what_arrives_is_signed_with_both_secrets(receiver: Receiver, mode: str) -> None:
    given = event(data='"größe"')
    assert await sent(hook(receiver, secrets=SECRETS, mode=mode), given) == [None]
    (got,) = receiver.received
    for secret in SECRETS:
        Webhook(secret).verify(got.body, got.headers)
    assert got.headers["webhook-id"] == given.id


async def test_an_event_that_comes_again_has_the_same_id(receiver: Receiver) -> None:
    receiver.next.append(answer("500 Oops"))
    sink, given = hook(receiver), event()
    assert "500 Internal Server Error" in reason((await sink.publish([given]))[0])
    assert await sent(sink, given) == [None]
    assert [got.headers["webhook-id"] for got in receiver.received] == [given.id] * 2


async def test_headers_of_the_operator_are_sent_along(receiver: Receiver) -> None:
    await sent(hook(receiver, headers={"Authorization": "Bearer t0ken"}), event())
    assert receiver.received[0].headers["authorization"] == "Bearer t0ken"


@pytest.mark.parametrize(
    "headers",
    [{"host": "evil"}, {"Content-Length": "0"}, {"webhook-id": "1"}, {"ce-type": "x"}, {"a b": "1"}, {"": "1"},
     {"x": None}, {"x": b"t0ken"}, {b"x": "1"},
     {"x\r\ny": "1"}, {"x": "t0ken\r\ny: 2"}, {"x": "t0ken\n"}, {"x": "t0kén"}, {"x": "t0ken\0"}],
)  # fmt: skip
def test_headers_that_would_break_the_request_are_refused(headers: dict[Any, Any]) -> None:
    with pytest.raises(InvalidPolicy) as caught:
        WebhookSink("https://example.com/", headers=headers)
    assert "t0k" not in str(caught.value)


async def test_proxies_of_the_environment_are_not_used(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Receiver() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url("/"))
        assert await sent(hook(receiver), event()) == [None]
        assert proxy.connections == 0


# What the answers mean.


@pytest.mark.parametrize("status", ["200 OK", "201 Created", "202 Accepted", "204 No Content", "299 Odd"])
async def test_every_2xx_means_that_it_was_taken(receiver: Receiver, status: str) -> None:
    receiver.always = f"HTTP/1.1 {status}\r\n\r\n".encode() if status[:3] == "204" else answer(status)
    assert await sent(hook(receiver), event()) == [None]


@pytest.mark.parametrize(
    "status", [300, 301, 302, 303, 307, 308, 400, 401, 403, 404, 408, 409, 422, 425, 429, 451, 500, 502, 503, 504, 599]
)
async def test_every_other_answer_is_tried_again(receiver: Receiver, status: int) -> None:
    receiver.always = answer(f"{status} X", "location: http://127.0.0.1/elsewhere")
    (refusal,) = await sent(hook(receiver), event())
    assert refusal is not None
    assert f"answered {status}" in refusal.reason
    assert (refusal.is_permanent, refusal.retry_after) == (False, None)
    assert len(receiver.received) == 1, "a redirect was followed"


@pytest.mark.parametrize("status", [410, 413])
async def test_gone_and_too_large_are_final(receiver: Receiver, status: int) -> None:
    receiver.always = answer(f"{status} X", "retry-after: 5")
    (refusal,) = await sent(hook(receiver), event())
    assert refusal is not None
    assert refusal.is_permanent


def http_date(seconds: float) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [("7", 7, 7), ("999999999999", 3600, 3600), (http_date(3_500), 1_000, 3_500), (http_date(90_000), 3600, 3600)],
    ids=["seconds", "very many seconds", "a date", "a far date"],
)
async def test_retry_after_is_honoured_up_to_an_hour(receiver: Receiver, value: str, low: float, high: float) -> None:
    receiver.always = answer("503 Busy", f"retry-after: {value}")
    (refusal,) = await sent(hook(receiver), event())
    assert refusal is not None
    assert refusal.retry_after is not None
    assert low <= refusal.retry_after <= high


@pytest.mark.parametrize(
    "value",
    ["0", "-5", "soon", "", "1.5", "٣", http_date(-60), "Mon, 99 Foo 2030", "1e9"],
    ids=["0", "negative", "word", "nothing", "fraction", "other digits", "past date", "no date", "exponent"],
)
async def test_a_retry_after_that_says_nothing_is_ignored(receiver: Receiver, value: str) -> None:
    receiver.always = answer("503 Busy", f"retry-after: {value}")
    (refusal,) = await sent(hook(receiver), event())
    assert refusal is not None
    assert refusal.retry_after is None


async def test_a_host_that_asks_for_a_pause_gets_it_for_the_whole_batch(receiver: Receiver) -> None:
    receiver.always = answer("429 Slow", "retry-after: 20")
    answers = await sent(hook(receiver, at_once=2), *(event() for _ in range(30)))
    assert len(receiver.received) <= 2
    assert {one and one.retry_after for one in answers} == {20}


async def test_a_host_that_wants_fewer_events_gets_no_more_and_the_unsent_are_not_blamed(receiver: Receiver) -> None:
    receiver.next.extend([OK] * 5)
    receiver.always = answer("429 Too Many Requests")
    answers = await sent(hook(receiver, at_once=2), *(event() for _ in range(30)))
    assert len(receiver.received) <= 7
    assert answers.count(None) == 5
    assert sum(1 for one in answers if one is not None and not one.is_untried) == len(receiver.received) - 5


async def test_the_body_of_an_answer_is_never_shown(receiver: Receiver) -> None:
    receiver.always = answer("500 <b>phrase</b>", body=b"inner secret")
    (refusal,) = await sent(hook(receiver), event())
    assert "secret" not in reason(refusal)
    assert "phrase" not in reason(refusal)


# Order, side by side.


async def test_after_a_refusal_the_rest_of_the_run_is_not_sent(receiver: Receiver) -> None:
    receiver.next.extend([OK, answer("500 Oops")])
    answers = await sent(hook(receiver), *story(4))
    assert answers[0] is None
    assert "500" in reason(answers[1])
    assert [reason(one) for one in answers[2:]] == [EARLIER_REFUSED] * 2
    assert len(receiver.received) == 2


async def test_many_runs_share_a_few_connections_and_each_stays_in_order(receiver: Receiver) -> None:
    stories = [story(5) for _ in range(30)]
    mixed = [one for wave in zip(*stories, strict=True) for one in wave]
    assert await sent(hook(receiver, at_once=4), *mixed) == [None] * 150
    assert receiver.connections <= 4
    for one in stories:
        ids = [got.headers["webhook-id"] for got in receiver.received]
        assert [id for id in ids if id.startswith(str(one[0].run_id))] == [given.id for given in one]


async def test_overlapping_calls_keep_to_the_limit(receiver: Receiver) -> None:
    sink = hook(receiver, at_once=3)
    together = await asyncio.gather(*(sink.publish([event() for _ in range(10)]) for _ in range(5)))
    await sink.close()
    assert all(one is None for answers in together for one in answers)
    assert receiver.connections <= 3


# Connections.


@pytest.mark.parametrize(
    "raw",
    [
        OK,
        answer("200 OK", body=b"x" * 65536),
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK,
        b"HTTP/1.1 204 No Content\r\n\r\n",
    ],
    ids=["empty", "64 KiB", "chunked", "early hints", "204"],
)
async def test_a_connection_is_used_again_after_an_ordinary_answer(receiver: Receiver, raw: bytes) -> None:
    receiver.always = raw
    assert await sent(hook(receiver), *story(5)) == [None] * 5
    assert receiver.connections == 1


@pytest.mark.parametrize(
    "raw",
    [
        answer("200 OK", "connection: close"),
        answer("200 OK", body=b"x" * 65537),
        OK.replace(b"1.1", b"1.0"),
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfffffff\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: \xb2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: " + b"0" * 5000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nabc0\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\ncontent-length: 2\r\n\r\n",
    ],
    ids=["close", "long", "1.0", "no chunk", "huge chunk", "gzip", "two lengths", "negative", "no length",
         "squared", "many zeros", "two ways", "chunk too long", "204 with a body"],
)  # fmt: skip
async def test_an_odd_answer_costs_the_connection_and_not_the_event(receiver: Receiver, raw: bytes) -> None:
    receiver.always = raw
    assert await sent(hook(receiver), *story(2)) == [None] * 2
    assert receiver.connections == 2


async def test_a_kept_connection_that_was_closed_meanwhile_is_replaced(receiver: Receiver) -> None:
    sink = hook(receiver)
    for _ in range(3):
        assert await sink.publish([event()]) == [None]
        receiver.drop()
    await sink.close()
    assert len(receiver.received) == 3


async def test_a_connection_that_lay_idle_for_long_is_not_trusted(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simpleworkflow.sinks.connections.IDLE_SECONDS", 0)
    assert await sent(hook(receiver), *story(3)) == [None] * 3
    assert receiver.connections == 3


async def test_a_receiver_that_dies_on_a_kept_connection_gets_the_event_on_a_new_one(receiver: Receiver) -> None:
    async def die(_: object, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    receiver.next.extend([OK, die])
    given = story(2)
    assert await sent(hook(receiver), *given) == [None, None]
    assert [got.headers["webhook-id"] for got in receiver.received] == [given[0].id, given[1].id, given[1].id]


async def test_a_receiver_that_dies_without_an_answer_is_tried_again_later(receiver: Receiver) -> None:
    async def die(_: object, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 O")
        await writer.drain()
        writer.close()

    receiver.always = die
    answers = await sent(hook(receiver), event())
    assert "the connection ended before an answer" in reason(answers[0])


async def test_a_host_that_is_down_is_asked_once_per_batch_and_found_again(receiver: Receiver) -> None:
    asked: list[str] = []

    async def resolve(host: str) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    port = receiver.port
    async with Receiver() as gone:
        dead = gone.port
    sink = WebhookSink(f"http://hooks.test:{dead}/", allow=("127.0.0.1",), allow_http=True, resolve=resolve, at_once=2)
    answers = await sink.publish([event() for _ in range(50)])
    assert {reason(one) for one in answers} == {f"http://hooks.test:{dead}/… cannot be reached: Connection refused"}
    assert len(asked) <= 2
    async with Receiver(port=dead) as back:
        assert await sent(sink, event()) == [None]
        assert len(back.received) == 1
    assert port != dead


async def test_a_cancelled_relay_leaves_no_connection_behind() -> None:
    arrived, ended = asyncio.Event(), asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        arrived.set()
        await reader.read()
        ended.set()
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    sink = WebhookSink(f"http://127.0.0.1:{port}/", allow=("127.0.0.1",), allow_http=True)
    publishing = asyncio.create_task(sink.publish([event()]))
    await arrived.wait()
    publishing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await publishing
    async with asyncio.timeout(5):
        await ended.wait()
    await sink.close()
    server.close()


# Limits.


async def test_a_receiver_that_never_answers_costs_the_time_limit_only(receiver: Receiver) -> None:
    async def silent(_: object, writer: asyncio.StreamWriter) -> None:
        await writer.wait_closed()

    receiver.always = silent
    started = time.monotonic()
    answers = await sent(hook(receiver, timeout=0.2, at_once=3), *(event() for _ in range(60)))
    assert time.monotonic() - started < 2
    assert all("did not answer within 200ms" in reason(one) for one in answers)
    assert len(receiver.received) <= 5, "after a whole round of silence the rest must not be tried"


async def test_a_receiver_that_drips_its_headers_runs_into_the_limit(receiver: Receiver) -> None:
    async def drip(_: object, writer: asyncio.StreamWriter) -> None:
        for byte in b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 1000:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.01)

    receiver.always = drip
    started = time.monotonic()
    answers = await sent(hook(receiver, timeout=0.3), event())
    assert "did not answer within" in reason(answers[0])
    assert time.monotonic() - started < 2


async def test_a_body_that_never_ends_is_cut_and_the_event_counts(receiver: Receiver) -> None:
    given_out = 0

    async def flood(_: object, writer: asyncio.StreamWriter) -> None:
        nonlocal given_out
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"4000\r\n" + b"x" * 0x4000 + b"\r\n")
            given_out += 0x4000
            await writer.drain()

    receiver.always = flood
    assert await sent(hook(receiver), event()) == [None]
    assert given_out < 50_000_000


async def test_a_body_that_drips_is_cut_and_the_event_counts(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simpleworkflow.sinks.http1.BODY_SECONDS", 0.1)

    async def drip(_: object, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n")
        await writer.drain()
        await writer.wait_closed()

    receiver.always = drip
    started = time.monotonic()
    assert await sent(hook(receiver, timeout=0.3), *story(2)) == [None, None]
    assert time.monotonic() - started < 2
    assert receiver.connections == 2


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"HTTP/1.1 200 OK\r\n" + b"x: " + b"y" * 40_000 + b"\r\n\r\n", "headers of more than 32 KiB"),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 8_000 + b"\r\n", "headers of more than 32 KiB"),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "not HTTP/1.1"),
        (b"HTTP/2 200\r\n\r\n", "not HTTP/1.1"),
        (b"HTTP/1.1 99 Low\r\n\r\n", "not HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "a header that cannot be read"),
        (b"HTTP/1.1 200 OK\r\nx: 1\r\n folded\r\n\r\n", "a header that cannot be read"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 6, "interim answers without an end"),
        (b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n", "answered 101"),
    ],
)
async def test_an_answer_that_is_none_is_refused_by_name(receiver: Receiver, raw: bytes, why: str) -> None:
    receiver.always = raw
    answers = await sent(hook(receiver), event())
    assert why in reason(answers[0])


async def test_a_receiver_may_refuse_a_large_event_before_it_has_read_it() -> None:
    async def hasty(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer("413 Too Large"))
        await writer.drain()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hasty, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    sink = WebhookSink(f"http://127.0.0.1:{port}/", allow=("127.0.0.1",), allow_http=True)
    (refusal,) = await sent(sink, event(data='"' + "x" * 20_000_000 + '"'))
    server.close()
    assert refusal == Refusal(f"http://127.0.0.1:{port}/… answered 413 {_phrase()}", is_permanent=True)


def _phrase() -> str:
    from http import HTTPStatus

    return HTTPStatus(413).phrase  # its name depends on the version of Python


# Secrets.


async def test_no_reason_or_repr_holds_a_secret_of_the_url(receiver: Receiver) -> None:
    path = "/services/T0/tok-in-path?token=tok-in-query"
    sink = hook(receiver, path, secrets=SECRETS, headers={"authorization": "tok-in-header"})
    told = [repr(sink)]
    for raw in (answer("404 X"), answer("302 X", "location: /tok-in-path"), b"rubbish\r\n\r\n", answer("410 X")):
        receiver.always = raw
        told.append(reason((await sink.publish([event()]))[0]))
    await sink.close()
    assert not re.search("tok-in|whsec|YWFh|YmJi", " ".join(told))
    assert len(told) == 5


@pytest.mark.parametrize("options", [{"mode": "both"}, {"at_once": 0}, {"timeout": 0}, {"timeout": 60},
                                     {"timeout": float("nan")}, {"allow": "10.0.0.0/8"},
                                     {"allow": ["10.0.0.0/99"]}, {"allow": ["a b"]}, {"allow": [""]}])  # fmt: skip
def test_options_that_cannot_work_are_refused_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidPolicy):
        WebhookSink("https://example.com/", **options)
