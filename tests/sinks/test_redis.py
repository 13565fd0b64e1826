"""Redis Streams, on whichever server could be had (redis_server.py)."""

from __future__ import annotations

import asyncio
import itertools
import json
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import redis
import trustme
from cloudevents.core.v1.event import CloudEvent as ParsedEvent
from support.proxy import Proxy

from simpleworkflow.model.errors import InvalidPolicy, InvalidURL
from simpleworkflow.sinks.by_run import EARLIER_REFUSED, NO_TIME_LEFT
from simpleworkflow.sinks.redis import DEFAULT_STREAM, RedisSink

from .made import NOON, event, reason, story
from .redis_server import RedisServer

pytestmark = pytest.mark.xdist_group("redis")


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[redis.Redis]:
    with redis_server.client() as opened:
        opened.flushall()
        yield opened


@pytest.fixture
async def sink(redis_server: RedisServer, client: redis.Redis) -> AsyncIterator[RedisSink]:
    opened = RedisSink(redis_server.url)
    yield opened
    await opened.close()


def entries(client: redis.Redis, stream: str = DEFAULT_STREAM) -> list[dict[str, str]]:
    return [fields for _, fields in client.xrange(stream)]


async def test_an_entry_has_the_attributes_and_the_data_as_fields(sink: RedisSink, client: redis.Redis) -> None:
    given = event(3, data='{"n": 10000000000000000000001, "a": "é"}', traceparent="00-1-2-01")
    assert await sink.publish([given]) == [None]
    (fields,) = entries(client)
    assert fields.pop("data") == given.data
    fields_of_time: Any = {**fields, "time": datetime.fromisoformat(fields["time"])}
    parsed = ParsedEvent(fields_of_time, json.loads(given.data))
    assert (parsed.get_id(), parsed.get_type(), parsed.get_subject()) == (given.id, given.type, str(given.run_id))
    assert (parsed.get_time(), parsed.get_extension("sequence")) == (NOON, "0000000003")
    assert parsed.get_extension("workflowtype") == "shop.order.v1"


async def test_many_runs_arrive_each_in_its_order(sink: RedisSink, client: redis.Redis) -> None:
    stories = [story(4) for _ in range(25)]
    mixed = [one for wave in zip(*stories, strict=True) for one in wave]
    assert await sink.publish(mixed) == [None] * 100
    ids = [fields["id"] for fields in entries(client)]
    for one in stories:
        assert [id for id in ids if id.startswith(str(one[0].run_id))] == [given.id for given in one]


async def test_streams_can_be_chosen_by_type(redis_server: RedisServer, client: redis.Redis) -> None:
    sink = RedisSink(redis_server.url, stream="{workflow_type}/{type}")
    await sink.publish([event(type="order.paid"), event(type="order.sent")])
    await sink.close()
    assert len(entries(client, "shop.order.v1/order.paid")) == len(entries(client, "shop.order.v1/order.sent")) == 1


async def test_maxlen_keeps_a_stream_from_growing_for_ever(redis_server: RedisServer, client: redis.Redis) -> None:
    sink = RedisSink(redis_server.url, maxlen=100)
    await sink.publish([event() for _ in range(1000)])
    await sink.close()
    assert 100 <= client.xlen(DEFAULT_STREAM) <= 400


async def test_a_refused_event_holds_back_its_own_run_only(redis_server: RedisServer, client: redis.Redis) -> None:
    client.set("events:bad", "not a stream")
    sink = RedisSink(redis_server.url, stream="events:{type}")
    run = event().run_id
    given = [event(1, run=run), event(2, run=run, type="bad"), event(3, run=run), event(1)]
    answers = await sink.publish(given)
    await sink.close()
    assert answers[0] is None
    assert "WRONGTYPE" in reason(answers[1])
    assert reason(answers[2]) == EARLIER_REFUSED
    assert answers[3] is None
    assert sorted(fields["id"] for fields in entries(client, "events:order.paid")) == sorted([given[0].id, given[3].id])


async def test_a_killed_server_refuses_and_a_restarted_one_is_found_again() -> None:
    with RedisServer() as server:
        sink = RedisSink(server.url)
        assert await sink.publish([event()]) == [None]
        server.kill()
        answers = await sink.publish(story(3))
        assert "ConnectionError" in reason(answers[0])
        assert [reason(one) for one in answers[1:]] == [EARLIER_REFUSED] * 2
        server.restart()
        # The first try may meet a connection of the old server's.
        assert None in [(await sink.publish([event()]))[0] for _ in range(2)]
        with server.client() as client:
            assert client.xlen(DEFAULT_STREAM) >= 1
        await sink.close()


async def test_a_server_that_goes_deaf_runs_into_the_limit(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simpleworkflow.sinks.redis.TIMEOUT", 0.2)
    async with Proxy(redis_server.url) as proxy:
        sink = RedisSink(proxy.url)
        assert await sink.publish([event()]) == [None]
        proxy.freeze()
        async with asyncio.timeout(5):
            answers = await sink.publish([event()])
        assert "imeout" in reason(answers[0])
        await sink.close()


@pytest.mark.parametrize(("named", "told"), [("localhost", None), ("elsewhere.example", "certificate verify failed")])
async def test_with_tls_the_certificate_must_be_for_the_host(
    redis_server: RedisServer, authority: trustme.CA, tmp_path: Path, named: str, told: str | None
) -> None:
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(named).configure_cert(context)
    async with Proxy(redis_server.url, tls=context) as proxy:
        url = proxy.url.replace("redis://", "rediss://").replace("127.0.0.1", "localhost")
        sink = RedisSink(f"{url}?ssl_ca_certs={tmp_path / 'ca.pem'}")
        (answer,) = await sink.publish([event()])
        await sink.close()
    assert answer is None if told is None else told in reason(answer)


@pytest.mark.parametrize("password", ["hunter2-secret", "s%2Fl%40sh"])
async def test_a_wrong_password_is_told_and_not_shown(redis_server: RedisServer, password: str) -> None:
    sink = RedisSink(f"redis://:{password}@127.0.0.1:{redis_server.port}/0")
    (answer,) = await sink.publish([event()])
    await sink.close()
    assert "AuthenticationError" in reason(answer)
    assert not any(secret in reason(answer) for secret in (password, "hunter2", "s/l@sh"))


async def test_a_missing_password_is_told_as_such(redis_server: RedisServer) -> None:
    sink = RedisSink(f"redis://127.0.0.1:{redis_server.port}/0")
    (answer,) = await sink.publish([event()])
    await sink.close()
    assert reason(answer).endswith("it wants a password: redis://:PASSWORD@host/0")


async def test_a_long_story_on_a_slow_line_ends_before_the_relays_patience(
    sink: RedisSink, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count(0, 15)  # one look at it before the first event, and one before each
    monkeypatch.setattr("simpleworkflow.sinks.redis.monotonic", lambda: next(clock))
    answers = await sink.publish(story(5))
    assert answers[:2] == [None, None]
    assert answers[2] == NO_TIME_LEFT
    assert [reason(one) for one in answers[3:]] == [EARLIER_REFUSED, EARLIER_REFUSED]
    assert client.xlen(DEFAULT_STREAM) == 2


async def test_a_server_that_repeats_the_password_is_not_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = RedisSink("redis://ada:s%2Fl%40sh@127.0.0.1:1/0")

    async def tells(_: object) -> list[Exception | None]:
        raise redis.ResponseError("user ada with s/l@sh, written s%2Fl%40sh, is unknown")

    monkeypatch.setattr(sink, "_add", tells)
    (answer,) = await sink.publish([event()])
    assert reason(answer).endswith("user ada with ***, written ***, is unknown")


@pytest.mark.parametrize(
    "url",
    [
        "http://h:hunter2@x",
        "redis://:hunter2@host:port/0",
        "redis://[::1/hunter2",
        "redis://h/0?socket_timeout=hunter2",
        "redis://h/0?streem=hunter2",
    ],
)
def test_a_bad_url_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(InvalidURL) as caught:
        RedisSink(url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("options", [{"stream": ""}, {"stream": "a\nb"}, {"maxlen": 0}])
def test_options_that_cannot_work_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidPolicy):
        RedisSink("redis://localhost", **options)


def test_without_the_package_the_message_says_what_to_install() -> None:
    code = """
import sys
sys.modules["redis"] = None
from simpleworkflow.model.errors import MissingExtra
from simpleworkflow.sinks.at import sink_at
try:
    sink_at("redis://:hunter2@host/0")
except MissingExtra as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert done.stdout == "Redis needs redis-py; install it with: pip install '/path/to/simpleworkflow[redis]'\n"
    assert done.stderr == ""
