"""Sinks named on one line, and several of them at once."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from standardwebhooks.webhooks import Webhook

from simpleworkflow.model.errors import InvalidPolicy, InvalidURL
from simpleworkflow.sinks.at import sink_at
from simpleworkflow.sinks.by_run import EARLIER_REFUSED
from simpleworkflow.sinks.calling import CallingSink
from simpleworkflow.sinks.http import WebhookSink
from simpleworkflow.sinks.lines import LinesSink
from simpleworkflow.sinks.protocol import CloudEvent, Refusal, Sink
from simpleworkflow.sinks.several import SeveralSinks

from .made import event, story
from .receiver import Receiver
from .redis_server import RedisServer

SECRETS = [f"whsec_{base64.b64encode(letter * 24).decode()}" for letter in (b"a", b"b")]


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SECRETS", "ALLOW", "ALLOW_HTTP", "MODE"):
        monkeypatch.delenv(f"SIMPLEWORKFLOW_WEBHOOK_{name}", raising=False)


async def test_standard_output_and_files_are_named_by_their_scheme(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for place in ("stdout:", "file:events.jsonl", f"file:{tmp_path}/events.jsonl", f"file://{tmp_path}/events.jsonl"):
        sink = sink_at(place)
        assert await sink.publish([event()]) == [None]
        await sink.close()
    assert json.loads(capsys.readouterr().out)["type"] == "order.paid"
    assert len((tmp_path / "events.jsonl").read_text().splitlines()) == 3


async def test_a_webhook_takes_its_secrets_and_freedoms_from_the_environment(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIMPLEWORKFLOW_WEBHOOK_SECRETS", " , ".join(SECRETS))
    monkeypatch.setenv("SIMPLEWORKFLOW_WEBHOOK_ALLOW", "10.0.0.0/8, 127.0.0.1,")
    monkeypatch.setenv("SIMPLEWORKFLOW_WEBHOOK_ALLOW_HTTP", "1")
    monkeypatch.setenv("SIMPLEWORKFLOW_WEBHOOK_MODE", "binary")
    sink = sink_at(f" {receiver.url()} ")
    assert await sink.publish([event()]) == [None]
    await sink.close()
    (got,) = receiver.received
    assert got.headers["ce-type"] == "order.paid"
    for secret in SECRETS:
        Webhook(secret).verify(got.body, got.headers)


async def test_a_redis_stream_is_named_in_the_query(redis_server: RedisServer) -> None:
    sink = sink_at(f"{redis_server.url}?stream=orders&maxlen=5000")
    assert await sink.publish([event()]) == [None]
    await sink.close()
    with redis_server.client() as client:
        assert client.xlen("orders") == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "names no place"),
        ("events.jsonl", "names no place"),
        ("stdout", "names no place"),
        ("stdout:x", "not a place for events"),
        ("kafka://u:hunter2@host/topic", "not a place for events"),
        ("file:", "needs the path"),
        ("file://host/hunter2", "needs the path"),
        ("file:/nowhere/at/all", "there is no folder"),
        ("http://example.com/hunter2", "allow_http"),
        ("https://u:hunter2@example.com/", "user name or password"),
        ("https://127.0.0.1/hunter2", "loopback"),
        ("redis://:hunter2@host/0?maxlen=many", "maxlen"),
        ("redis://:hunter2@host/0?maxlen=٣", "maxlen"),
        ("redis://:hunter2@host:x/0", "cannot be read"),
        ("redis://[hunter2/0", "cannot be read"),
    ],
)
def test_a_mistake_is_explained_and_no_secret_shown(text: str, words: str) -> None:
    with pytest.raises(InvalidURL) as caught:
        sink_at(text)
    assert words in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost:8000", "[::1]", "10.1.2.3"])
def test_everything_that_must_be_allowed_is_told_at_once(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidURL) as caught:
        sink_at(f"http://{host}/hook")
    for variable in ("SIMPLEWORKFLOW_WEBHOOK_ALLOW_HTTP=1", "SIMPLEWORKFLOW_WEBHOOK_ALLOW)"):
        assert variable in str(caught.value)
    monkeypatch.setenv("SIMPLEWORKFLOW_WEBHOOK_ALLOW_HTTP", "1")
    monkeypatch.setenv("SIMPLEWORKFLOW_WEBHOOK_ALLOW", "localhost, 127.0.0.1, ::1, 10.1.2.3")
    sink_at(f"http://{host}/hook")


def test_bad_settings_in_the_environment_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("SECRETS", "whsec_hunter2"), ("ALLOW", "10.0.0.0/99"), ("MODE", "loud")):
        with monkeypatch.context() as patched, pytest.raises(InvalidPolicy) as caught:
            patched.setenv(f"SIMPLEWORKFLOW_WEBHOOK_{name}", value)
            sink_at("https://example.com/")
        assert "hunter2" not in str(caught.value)


class Thanks(BaseHTTPRequestHandler):
    """A receiver that outlives an event loop."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Not on the screen."""


def test_a_closed_sink_serves_the_next_worker_in_another_event_loop(tmp_path: Path) -> None:
    async def serve(sink: Sink) -> set[Refusal | None]:
        answers = await sink.publish([event() for _ in range(9)])
        await sink.close()
        return set(answers)

    with ThreadingHTTPServer(("127.0.0.1", 0), Thanks) as receiver:
        threading.Thread(target=receiver.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://localhost:{receiver.server_port}/"
        webhook = WebhookSink(url, allow=["localhost"], allow_http=True, at_once=2)
        for sink in (webhook, LinesSink(tmp_path / "events.jsonl"), CallingSink(lambda _: None)):
            assert [asyncio.run(serve(sink)) for _ in range(2)] == [{None}, {None}]
        receiver.shutdown()


# Several.


class Scripted:
    """A sink with given answers."""

    def __init__(self, *answers: Refusal | None) -> None:
        self.answers = answers
        self.is_closed = False

    async def publish(self, events: Sequence[CloudEvent]) -> Sequence[Refusal | None]:
        return self.answers[: len(events)]

    async def close(self) -> None:
        self.is_closed = True


async def test_an_event_is_taken_when_all_places_took_it(tmp_path: Path) -> None:
    seen: list[CloudEvent] = []
    sink = SeveralSinks(CallingSink(seen.append), LinesSink(tmp_path / "events.jsonl"))
    given = story(3)
    assert await sink.publish(given) == [None] * 3
    await sink.close()
    assert seen == given
    assert len((tmp_path / "events.jsonl").read_text().splitlines()) == 3


async def test_one_refusal_is_enough_and_holds_back_the_rest_of_the_run() -> None:
    one = Scripted(None, Refusal("busy", retry_after=3), None)
    two = Scripted(None, Refusal("gone", is_permanent=True, retry_after=9), None)
    answers = await SeveralSinks(one, two).publish(story(3))
    assert answers == [None, Refusal("busy; gone", True, 9), Refusal(EARLIER_REFUSED, retry_after=9)]


async def test_an_event_is_untried_when_no_place_has_been_asked() -> None:
    late, busy = Refusal("no time", is_untried=True), Refusal("busy")
    for two, is_untried in ((late, True), (busy, False)):
        (answer,) = await SeveralSinks(Scripted(late), Scripted(two), Scripted(None)).publish([event()])
        assert answer is not None
        assert answer.is_untried is is_untried


async def test_a_place_that_raises_makes_nothing_known_to_be_taken() -> None:
    class Broken(Scripted):
        async def publish(self, events: Sequence[CloudEvent]) -> Sequence[Refusal | None]:
            raise ConnectionError("gone")

    other = Scripted(None)
    sink = SeveralSinks(other, Broken())
    with pytest.raises(ConnectionError):
        await sink.publish([event()])
    await sink.close()
    assert other.is_closed


def test_no_places_at_all_are_refused() -> None:
    with pytest.raises(InvalidPolicy):
        SeveralSinks()


async def test_a_bug_in_a_sink_is_raised_and_no_events_are_no_work() -> None:
    from simpleworkflow.sinks.by_run import deliver_by_run

    async def deliver(given: CloudEvent) -> Refusal | None:
        if given.sequence == 2:
            raise LookupError("a bug in a sink")
        await asyncio.sleep(0)
        return None

    with pytest.raises(ExceptionGroup):
        await deliver_by_run(story(3), deliver, 4)
    assert await deliver_by_run([], deliver, 4) == []


def test_every_name_that_the_room_offers_is_there() -> None:
    import simpleworkflow.sinks as room

    assert all(getattr(room, name) for name in room.__all__)
    assert room.sink_at is sink_at
    with pytest.raises(AttributeError, match="NatsSink"):
        room.NatsSink  # noqa: B018
