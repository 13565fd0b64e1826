"""Webhooks: each event is a POST, signed, to a URL that may be somebody else's.

Taken means an answer of 2xx. What the others mean follows Standard Webhooks: 410 Gone (nobody listens there any more)
and 413 (too large, and it will not shrink) are final; every other status may be a deploy, a typo or a bad minute over
there, so the relay tries again with growing pauses and gives up in its own time. `Retry-After` is honoured, up to an
hour. Redirects are not followed, since they could lead anywhere.

The dangers are in the neighbours: where the URL leads (addresses.py, target.py, connections.py), what comes back
(http1.py) and who may claim to be us (signing.py). Here it is the batch: a host that is down must not cost a timeout
for each of a hundred runs, so what one delivery learns about the host is the answer for those behind it in the same
call. A host that is well but wants fewer (429) gets no more in this call, and what was not sent is not blamed for it.

Reasons name the host, never the path or the query: those of webhooks are often secrets.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from email.utils import parsedate_to_datetime
from functools import partial
from http import HTTPStatus

from ..clock import SystemClock, to_micros
from ..model.duration import human
from ..model.errors import InvalidPolicy
from .addresses import Allowed
from .by_run import deliver_by_run
from .connections import Connections, Resolve, Unreachable
from .envelope import STRUCTURED, binary_headers, percent_encoded, structured
from .http1 import BODY_SECONDS, Answer, BrokenAnswer
from .protocol import CloudEvent, Refusal
from .signing import Signer
from .target import parse_target

TIMEOUT = 10.0
LONGEST_TIMEOUT = 45.0
CONNECT_TIMEOUT = 5.0
LONGEST_RETRY_AFTER = 3600.0
MODES = ("structured", "binary")

_FINAL = {410, 413}
_TOO_FAST, _AWAY = 429, 503
_OURS = {"host", "content-length", "content-type", "transfer-encoding", "connection", "expect", "upgrade", "te"}


class WebhookSink:
    """Posts events to `url`: for at most `at_once` runs at a time, and each run's events in order.

    `secrets` sign (two at a time while you rotate them), `headers` are sent along, `allow` lists networks and host
    names that are not public and may be called all the same, `tls` replaces the system's trust, for a private
    authority, and `resolve` its look-up of names.
    """

    def __init__(
        self,
        url: str,
        *,
        secrets: Iterable[str] = (),
        mode: str = "structured",
        headers: Mapping[str, str] | None = None,
        allow: Iterable[str] = (),
        allow_http: bool = False,
        timeout: float = TIMEOUT,
        at_once: int = 8,
        tls: ssl.SSLContext | None = None,
        resolve: Resolve | None = None,
    ) -> None:
        if mode not in MODES:
            raise InvalidPolicy(f"a webhook's mode is structured or binary, not {str(mode)[:20]!r}")
        if at_once < 1 or not 0 < timeout <= LONGEST_TIMEOUT:
            raise InvalidPolicy(
                f"a webhook needs at_once of 1 or more, and a timeout of at most {LONGEST_TIMEOUT:g} seconds"
            )
        allowed = Allowed(allow)
        self._target = parse_target(url, allowed, allow_http=allow_http)
        self._is_structured = mode == "structured"
        self._headers = _checked_headers(headers or {})
        self._signer = Signer(secrets)
        self._timeout = timeout
        self._at_once = at_once
        self._slots = asyncio.Semaphore(at_once)  # calls may overlap
        connect_timeout = min(CONNECT_TIMEOUT, timeout)
        self._connections = Connections(self._target, allowed, resolve=resolve, tls=tls, timeout=connect_timeout)

    def __repr__(self) -> str:
        return f"WebhookSink({str(self._target)!r})"

    async def publish(self, events: Sequence[CloudEvent]) -> Sequence[Refusal | None]:
        deliver = partial(self._deliver, _Learnt(self._at_once))
        return await deliver_by_run(events, deliver, self._at_once, longest=self._timeout + BODY_SECONDS)

    async def close(self) -> None:
        await self._connections.close()
        self._slots = asyncio.Semaphore(self._at_once)  # the next call may come from another event loop

    async def _deliver(self, learnt: _Learnt, event: CloudEvent) -> Refusal | None:
        async with self._slots:
            if learnt.about_the_host is not None:
                return learnt.about_the_host
            try:
                answer = await self._connections.exchange(self._request(event), self._timeout)
            except TimeoutError:
                refusal = Refusal(f"{self._target} did not answer within {human(self._timeout)}")
                learnt.no_answer(refusal)
                return refusal
            except Unreachable as error:
                learnt.about_the_host = Refusal(str(error))
                return learnt.about_the_host
            except BrokenAnswer as error:
                return Refusal(f"{self._target} gave no answer: {error}")
        answered = self._judge(answer)
        if answered is not None and answer.status == _TOO_FAST:
            learnt.about_the_host = replace(answered, is_untried=True)
        elif answered is not None and answer.status == _AWAY and answered.retry_after:
            learnt.about_the_host = answered
        return answered

    def _request(self, event: CloudEvent) -> bytes:
        body = (structured(event) if self._is_structured else event.data).encode()
        headers = {
            "host": self._target.host_header,
            "user-agent": "simpleworkflow",
            "content-length": str(len(body)),
            **self._headers,
            **({"content-type": STRUCTURED} if self._is_structured else binary_headers(event)),
            **self._signer.headers(percent_encoded(event.id), SystemClock().wall() // 1_000_000, body),
        }
        lines = [f"POST {self._target.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        return "\r\n".join([*lines, "", ""]).encode("ascii") + body

    def _judge(self, answer: Answer) -> Refusal | None:
        if 200 <= answer.status < 300:
            return None
        try:
            told = f"{answer.status} {HTTPStatus(answer.status).phrase}"
        except ValueError:
            told = str(answer.status)
        if 300 <= answer.status < 400:
            told += "; redirects are not followed: give the URL that it leads to"
        if answer.status in _FINAL:
            return Refusal(f"{self._target} answered {told}", is_permanent=True)
        return Refusal(f"{self._target} answered {told}", retry_after=_retry_after(answer.headers.get("retry-after")))


class _Learnt:
    """What one call has learnt about the host, for the events that are still to be sent."""

    def __init__(self, patience: int) -> None:
        self.about_the_host: Refusal | None = None
        self._patience = patience

    def no_answer(self, refusal: Refusal) -> None:
        """One event may be what the host chokes on; a whole round without an answer is the host."""
        self._patience -= 1
        if self._patience <= 0:
            self.about_the_host = refusal


def _retry_after(value: str | None) -> float | None:
    """Seconds, given as such or as a date; nothing that cannot be read, or has passed."""
    if not value:
        return None
    if value.isascii() and value.isdigit():
        wait = float(value[:9])
    else:
        try:
            wait = (to_micros(parsedate_to_datetime(value)) - SystemClock().wall()) / 1_000_000
        except (ValueError, TypeError, OverflowError):
            return None
    return min(wait, LONGEST_RETRY_AFTER) if wait > 0 else None


def _checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Extra headers of the operator's; values are never shown, they may be tokens."""
    checked = {}
    for name, value in headers.items():
        lower = str(name).lower()
        if not lower or not isinstance(name, str) or not all(c.isascii() and (c.isalnum() or c in "-_") for c in name):
            raise InvalidPolicy(f"{lower[:40]!r} is not a header's name; use letters, digits and hyphens")
        if lower in _OURS or lower.startswith(("webhook-", "ce-")):
            raise InvalidPolicy(f"the header {lower} is set by the webhook itself")
        if not isinstance(value, str) or not value.isascii() or not value.isprintable():
            raise InvalidPolicy(f"the value of the header {lower} must be printable ASCII, on one line")
        checked[lower] = value
    return checked
