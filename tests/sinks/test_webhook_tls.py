"""TLS of webhooks: the certificate must be for the host's name, valid, and of an authority that is trusted."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta

import pytest
import trustme

from simpleworkflow.sinks.http import WebhookSink

from .made import event, reason
from .receiver import Receiver


async def resolve(_: str) -> list[str]:
    return ["127.0.0.1"]


async def tried(receiver: Receiver, host: str, tls: ssl.SSLContext | None) -> str:
    """The reason of the refusal; empty when the event was taken."""
    sink = WebhookSink(receiver.url(host=host), allow=("127.0.0.1",), resolve=resolve, tls=tls)
    (answer,) = await sink.publish([event()])
    await sink.close()
    return "" if answer is None else answer.reason


async def test_the_name_is_proved_although_an_address_is_connected(
    secure_receiver: Receiver, trusting: ssl.SSLContext
) -> None:
    assert await tried(secure_receiver, "hooks.example", trusting) == ""
    assert secure_receiver.received[0].headers["host"] == f"hooks.example:{secure_receiver.port}"


async def test_a_certificate_for_another_name_is_refused(secure_receiver: Receiver, trusting: ssl.SSLContext) -> None:
    told = await tried(secure_receiver, "other.example", trusting)
    assert "its certificate is not valid: Hostname mismatch" in told
    assert secure_receiver.received == []


async def test_a_certificate_of_an_unknown_authority_is_refused(secure_receiver: Receiver) -> None:
    told = await tried(secure_receiver, "hooks.example", None)
    assert "its certificate is not valid" in told
    assert secure_receiver.received == []


async def test_a_certificate_that_has_expired_is_refused(authority: trustme.CA, trusting: ssl.SSLContext) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    yesterday = datetime.now(UTC) - timedelta(days=1)
    expired = authority.issue_cert("hooks.example", not_before=yesterday - timedelta(days=9), not_after=yesterday)
    expired.configure_cert(context)
    async with Receiver(tls=context) as receiver:
        assert "certificate has expired" in await tried(receiver, "hooks.example", trusting)


async def test_a_server_without_tls_is_refused(receiver: Receiver, trusting: ssl.SSLContext) -> None:
    sink = WebhookSink(f"https://127.0.0.1:{receiver.port}/", allow=("127.0.0.1",), tls=trusting, timeout=0.3)
    (answer,) = await sink.publish([event()])
    await sink.close()
    assert "in time" in reason(answer) or "did not answer" in reason(answer)
    assert receiver.received == []


async def test_a_handshake_that_never_comes_runs_into_the_limit(trusting: ssl.SSLContext) -> None:
    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(mute, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    sink = WebhookSink(f"https://127.0.0.1:{port}/", allow=("127.0.0.1",), tls=trusting, timeout=0.3)
    answers = await sink.publish([event() for _ in range(20)])
    await sink.close()
    server.close()
    assert all("did not answer within" in reason(one) or "no connection in time" in reason(one) for one in answers)


@pytest.mark.parametrize("url", ["http://example.com/", "HTTP://example.com/"])
def test_plain_http_must_be_allowed_explicitly(url: str) -> None:
    with pytest.raises(ValueError, match="allow_http"):
        WebhookSink(url)
    assert "http://example.com/…" in repr(WebhookSink(url, allow_http=True))
