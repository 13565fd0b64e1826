"""Redis Streams: each event is one entry (XADD), with CloudEvents' attributes and the data as fields.

    XRANGE simpleworkflow.events - +
    1) 1767225600000-0   id …  source …  type order.paid  subject <run id>  sequence 0000000003  …  data {"total": 5}

Fields rather than one JSON blob, so that a consumer can choose by type without parsing, and the data stays as the run
wrote it. There is no CloudEvents binding for Redis; this is its binary mode with plain names.

Taken means that the server has said so; how much of that survives its crash is its own setting (appendfsync). Events of
many runs go in one pipeline, but only one of each run: a pipeline goes on after an error, and the next event of a run
must not be in the stream when an earlier one is not. A Redis Cluster is refused by the server itself (MOVED). Whoever
reads drops repetitions by `id`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from ..clock import monotonic
from ..model.errors import InvalidPolicy, InvalidURL, MissingExtra
from ..model.install import needs
from ..store.url import mask_text
from .by_run import CALL_SECONDS, NO_TIME_LEFT, after, places_by_run
from .envelope import attributes
from .protocol import CloudEvent, Refusal

DEFAULT_STREAM = "simpleworkflow.events"
TIMEOUT = 10.0
CONNECT_TIMEOUT = 5.0
_WANTS_PASSWORD = ("Authentication required", "unauthenticated")
_HOW = "write redis://host:6379/0, rediss://user:password@host/0 or unix:///path/to/socket"


class RedisSink:
    """Adds events to `stream`, in which `{type}` and `{workflow_type}` stand for the event's.

    `maxlen` keeps each stream at about so many entries; without it the stream grows until its reader trims it.
    """

    def __init__(self, url: str, *, stream: str = DEFAULT_STREAM, maxlen: int | None = None) -> None:
        if not stream or not stream.isprintable():
            raise InvalidPolicy("the name of a stream is printable text, such as orders or events:{type}")
        if maxlen is not None and maxlen < 1:
            raise InvalidPolicy(f"maxlen must be 1 or more entries, not {maxlen}")
        self._stream = stream
        self._maxlen = maxlen
        self._secrets = _secrets_of(url)
        self._client = _client(url)

    async def publish(self, events: Sequence[CloudEvent]) -> Sequence[Refusal | None]:
        answers: list[Refusal | None] = [None] * len(events)
        waiting = places_by_run(events)
        until = monotonic() + CALL_SECONDS - TIMEOUT
        while waiting:
            wave = [places.pop(0) for places in waiting]
            if monotonic() > until:  # many events of one run on a slow connection
                refusals: list[Refusal | None] = [NO_TIME_LEFT] * len(wave)
            else:
                refusals = await self._offer([events[place] for place in wave])
            for place, rest, refusal in zip(wave, waiting, refusals, strict=True):
                if refusal is not None:
                    answers[place] = refusal
                    for later in rest:
                        answers[later] = after(refusal)
                    rest.clear()
            waiting = [rest for rest in waiting if rest]
        return answers

    async def close(self) -> None:
        await self._client.aclose()

    async def _offer(self, events: Sequence[CloudEvent]) -> list[Refusal | None]:
        from redis.exceptions import RedisError

        try:
            told = await self._add(events)
        except (RedisError, OSError) as error:  # TimeoutError is an OSError
            told = [error] * len(events)
        return [None if problem is None else self._refusal(problem) for problem in told]

    async def _add(self, events: Sequence[CloudEvent]) -> list[Exception | None]:
        """One round trip; an error for each event that the server refused."""
        pipeline = self._client.pipeline(transaction=False)
        for event in events:
            fields = {**attributes(event), "data": event.data}
            pipeline.xadd(self._stream_of(event), fields, maxlen=self._maxlen, approximate=True)
        answers = await pipeline.execute(raise_on_error=False)
        return [answer if isinstance(answer, Exception) else None for answer in answers]

    def _stream_of(self, event: CloudEvent) -> str:
        return self._stream.replace("{type}", event.type).replace("{workflow_type}", event.workflow_type)

    def _refusal(self, error: Exception) -> Refusal:
        told = mask_text(f"{type(error).__name__}: {error}")
        for secret in self._secrets:
            told = told.replace(secret, "***")
        if any(words in told for words in _WANTS_PASSWORD):
            told += "; it wants a password: redis://:PASSWORD@host/0"
        return Refusal(f"Redis did not take it: {told[:300]}")


def _client(url: str) -> Any:
    try:
        from redis import asyncio as redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff
    except ImportError:
        raise MissingExtra(needs("Redis needs", "redis-py", "redis")) from None
    try:
        client: Any = redis.Redis.from_url(
            url,
            socket_timeout=TIMEOUT,
            socket_connect_timeout=CONNECT_TIMEOUT,
            retry=Retry(NoBackoff(), 0),  # the relay tries again, and says so
            protocol=2,
            **_tls_options(url),
        )
        client.connection_pool.make_connection()  # connects to nothing, but knows which options exist
        return client
    except (ValueError, TypeError):  # their texts may hold parts of the password
        raise InvalidURL(
            f"that Redis URL cannot be read, or has an option after the ? that there is not; {_HOW}"
        ) from None


def _tls_options(url: str) -> dict[str, bool]:
    """The certificate must be for the host, which redis-py before 6 does not ask; who wants none at all gets none."""
    return {"ssl_check_hostname": True} if url.lower().startswith("rediss:") and "ssl_cert_reqs" not in url else {}


def _secrets_of(url: str) -> list[str]:
    """Every text that must not be in a message, in both of its spellings."""
    try:
        written = urlsplit(url).password
    except ValueError:
        raise InvalidURL(f"that Redis URL cannot be read; {_HOW}") from None
    return [secret for secret in {written, unquote(written)} if secret] if written else []
