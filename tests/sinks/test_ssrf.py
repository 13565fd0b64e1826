"""Tricks that would lead a webhook into our own network. Each is refused, and nothing is connected.

A canary listens on every address of this machine; it must hear nothing. Names resolve to 127.0.0.1 unless a test says
otherwise, plain http is allowed and every host in doubt is tried with a batch, so that the check under test is the only
thing in the way. The controls at the end show that the canary hears those who do get through.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from ipaddress import ip_address

import pytest

from simpleworkflow.model.errors import InvalidURL
from simpleworkflow.sinks.addresses import why_not_public
from simpleworkflow.sinks.http import WebhookSink

from .made import event, reason
from .receiver import Receiver, answer

NUMBERS = "four decimal numbers"
LETTERS = "labels of letters"
ASCII = "plain ASCII only"
UNREADABLE = "cannot be read"
PUBLIC = "webhooks go to public addresses"

SPELLED = {
    # Addresses of this machine, in the spellings that resolvers understand.
    "http://127.0.0.1:{port}/": "127.0.0.1 is loopback",
    "http://127.0.0.1.:{port}/": "127.0.0.1 is loopback",
    "http://127.255.255.254:{port}/": "loopback",
    "http://127.1:{port}/": NUMBERS,
    "http://127.0.1:{port}/": NUMBERS,
    "http://2130706433:{port}/": NUMBERS,
    "http://0x7f000001:{port}/": NUMBERS,
    "http://0x7f.0x0.0x0.0x1:{port}/": NUMBERS,
    "http://0X7F.1:{port}/": NUMBERS,
    "http://0177.0.0.1:{port}/": NUMBERS,
    "http://017700000001:{port}/": NUMBERS,
    "http://127.0.0.01:{port}/": NUMBERS,
    "http://127.0.0.256:{port}/": NUMBERS,
    "http://127.0.0.1.1:{port}/": NUMBERS,
    "http://0:{port}/": NUMBERS,
    "http://0.0.0.0:{port}/": "unspecified",
    "http://0.0.0.1:{port}/": "unspecified",
    "http://127.0.0.1..:{port}/": LETTERS,
    "http://.127.0.0.1:{port}/": LETTERS,
    "http://localhost:{port}/": "localhost is loopback",
    "http://LocalHost.:{port}/": "localhost is loopback",
    "http://a.b.localhost:{port}/": "loopback",
    "http://①②⑦.⓪.⓪.①:{port}/": ASCII,
    "http://127。0。0。1:{port}/": ASCII,
    "http://１２７.0.0.1:{port}/": ASCII,
    "http://١٢٧.0.0.1:{port}/": ASCII,
    "http://loc\u00adalhost:{port}/": ASCII,
    "http://loc\u200dalhost:{port}/": ASCII,
    "http://ⓛocalhost:{port}/": ASCII,
    "http://%31%32%37.0.0.1:{port}/": LETTERS,
    "http://127%2e0%2e0%2e1:{port}/": LETTERS,
    "http://127.0.0.1%00.example.com:{port}/": LETTERS,
    "http://127.0.0.1%20:{port}/": LETTERS,
    # The same in IPv6, and IPv4 inside IPv6.
    "http://[::1]:{port}/": "::1 is loopback",
    "http://[0:0:0:0:0:0:0:1]:{port}/": "loopback",
    "http://[::]:{port}/": "unspecified",
    "http://[::ffff:127.0.0.1]:{port}/": "loopback",
    "http://[::ffff:7f00:1]:{port}/": "loopback",
    "http://[::ffff:0:127.0.0.1]:{port}/": "reserved",
    "http://[::127.0.0.1]:{port}/": "reserved",
    "http://[64:ff9b::7f00:1]:{port}/": "loopback",
    "http://[64:ff9b::169.254.169.254]:{port}/": "metadata",
    "http://[64:ff9b:1::7f00:1]:{port}/": "reserved",
    "http://[2002:7f00:1::]:{port}/": "6to4",
    "http://[2001:0:7f00:1::80ff:fffe]:{port}/": "Teredo",
    "http://[fe80::1]:{port}/": "link-local",
    "http://[fe80::1%25lo]:{port}/": UNREADABLE,
    "http://[::1%25lo]:{port}/": UNREADABLE,
    "http://[127.0.0.1]:{port}/": "not an IPv6 address",
    "http://[::1:{port}/": UNREADABLE,
    "http://::1:{port}/": UNREADABLE,
    # Other people's insides.
    "http://10.0.0.1:{port}/": "private",
    "http://172.31.255.255:{port}/": "private",
    "http://192.168.0.1:{port}/": "private",
    "http://100.100.100.200:{port}/": "CGNAT",
    "http://169.254.169.254/latest/meta-data/": "metadata",
    "http://168.63.129.16/": "metadata",
    "http://192.0.0.192/": "reserved",
    "http://[fd00:ec2::254]/": "unique local",
    "http://[fec0::1]/": "reserved",
    "http://224.0.0.1/": "multicast",
    "http://[ff02::1]/": "multicast",
    "http://255.255.255.255/": "reserved",
    "http://198.18.0.1/": "benchmarks",
    # Two readers, two hosts.
    "http://example.com@127.0.0.1:{port}/": "user name or password",
    "http://127.0.0.1:{port}@example.com/": "user name or password",
    "http://user:hunter2@127.0.0.1:{port}/": "user name or password",
    "http://example.com\\@127.0.0.1:{port}/": ASCII,
    "http://127.0.0.1:{port}\\.example.com/": ASCII,
    "http://example.com#@127.0.0.1:{port}/": "user name or password",
    "http://127.0.0.1:{port}#.example.com/": UNREADABLE,
    "http://example.com/#@127.0.0.1/": "without a #fragment",
    "http://127.0.0.1:{port}:80/": UNREADABLE,
    "http:///127.0.0.1:{port}/": UNREADABLE,
    "http:/127.0.0.1:{port}/": "is written https://host/path",
    "http:127.0.0.1:{port}": "is written https://host/path",
    "http:\\\\127.0.0.1:{port}\\": ASCII,
    "//127.0.0.1:{port}/": "is written https://host/path",
    " http://127.0.0.1:{port}/": ASCII,
    "http://127.0.0.1:{port}/\t": ASCII,
    "ht\ntp://127.0.0.1:{port}/": ASCII,
    # Other schemes.
    "file:///etc/passwd": "is written https://host/path",
    "gopher://127.0.0.1:{port}/_": "is written https://host/path",
    "ftp://127.0.0.1:{port}/": "is written https://host/path",
    "unix:///run/docker.sock": "is written https://host/path",
    "httpss://127.0.0.1:{port}/": "is written https://host/path",
    # Ports that do not exist, or that something else listens on.
    "http://hooks.test:0/": "port 0 does not exist",
    "http://hooks.test:65536/": "port 65536 does not exist",
    "http://hooks.test:999999/": UNREADABLE,
    "http://hooks.test:-1/": UNREADABLE,
    "http://hooks.test:+{port}/": UNREADABLE,
    "http://hooks.test:/": UNREADABLE,
    "http://hooks.test:٨٠/": ASCII,
    "http://hooks.test:22/": "port 22 belongs to something else",
    "http://hooks.test:25/": "port 25 belongs to something else",
    # A second request inside the first.
    "http://hooks.test:{port}/\r\nHost: 127.0.0.1\r\n\r\nGET /": ASCII,
    "http://hooks.test:{port}/ HTTP/1.1\r\nX: 1": ASCII,
    "http://hooks.test\r\n:{port}/": ASCII,
    "http://hooks.test:{port}/?a=b c": ASCII,
}

RESOLVED: dict[str, Sequence[Sequence[str]]] = {
    "a name for loopback": [["127.0.0.1"]],
    "a name for loopback in IPv6": [["::1"]],
    "a name for an IPv4-mapped address": [["::ffff:127.0.0.1"]],
    "a name for a NAT64 address": [["64:ff9b::7f00:1"]],
    "a name for a 6to4 address": [["2002:7f00:1::"]],
    "a name for this host": [["0.0.0.0"]],
    "a name for the metadata service": [["169.254.169.254"]],
    "a name for the metadata service in IPv6": [["fd00:ec2::254"]],
    "a name for a private address": [["10.1.2.3"]],
    "a name for a scoped address": [["fe80::1%lo"]],
    "a public address in front of loopback": [["93.184.216.34", "127.0.0.1"]],
    "loopback in front of a public address": [["127.0.0.1", "93.184.216.34"]],
    "many public addresses in front of loopback": [["93.184.216.34"] * 9 + ["127.0.0.1"]],
    "a public IPv4 address with a private IPv6 one": [["93.184.216.34", "fd00::1"]],
    "an allowed address in front of loopback": [["127.0.0.2", "127.0.0.1"]],
    "an answer that is no address": [["127.0.0.1 "]],
    "an answer that is another name": [["localhost"]],
    "an answer that is a number": [["2130706433"]],
    "no answer": [[]],
}


def test_there_are_at_least_forty_tricks() -> None:
    assert len(SPELLED) + len(RESOLVED) >= 40


class Canary(Receiver):
    """On every address of this machine, with one port."""

    def __init__(self) -> None:
        super().__init__(host="0.0.0.0")
        self._six: asyncio.Server | None = None

    async def __aenter__(self) -> Canary:
        await super().__aenter__()
        if socket.has_ipv6:
            try:
                self._six = await asyncio.start_server(self._serve, "::", self.port)
            except OSError:
                pass  # a machine without IPv6 has nothing to hear there
        return self

    async def __aexit__(self, *exception: object) -> None:
        if self._six is not None:
            self._six.close()
        await super().__aexit__(*exception)


@pytest.fixture
async def canary() -> AsyncIterator[Canary]:
    async with Canary() as opened:
        yield opened


class Resolver:
    """A name server of somebody who means harm: each question gets the next answer, and the last one for ever."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def __call__(self, _: str) -> Sequence[str]:
        self.asked += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


async def reason_against(url: str, resolver: Resolver, allow: Sequence[str] = ()) -> str:
    """Why nothing was sent; empty when it was."""
    sink = WebhookSink(url, allow=allow, allow_http=True, timeout=2, resolve=resolver)
    answers = await sink.publish([event(), event()])
    await sink.close()
    return "" if answers == [None, None] else reason(answers[0])


@pytest.mark.parametrize("url", SPELLED, ids=ascii)
async def test_a_trick_in_the_spelling_is_refused_at_once(url: str, canary: Canary) -> None:
    resolver = Resolver(["127.0.0.1"])
    with pytest.raises(InvalidURL) as caught:
        await reason_against(url.replace("{port}", str(canary.port)), resolver)
    assert SPELLED[url] in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert (canary.connections, resolver.asked) == (0, 0)


@pytest.mark.parametrize("trick", RESOLVED)
async def test_a_trick_in_the_resolving_is_refused_unconnected(trick: str, canary: Canary) -> None:
    told = await reason_against(f"http://hooks.test:{canary.port}/", Resolver(*RESOLVED[trick]), ["127.0.0.2"])
    assert any(words in told for words in (PUBLIC, "cannot be resolved", "has no address"))
    assert canary.connections == 0


async def test_a_name_that_changes_its_mind_is_asked_once_and_taken_at_its_word() -> None:
    resolver = Resolver(["127.0.0.2"], ["127.0.0.1"])
    async with Receiver(host="127.0.0.2") as allowed, Receiver(host="127.0.0.1", port=allowed.port) as forbidden:
        sink = WebhookSink(f"http://hooks.test:{allowed.port}/", allow=["127.0.0.2"], allow_http=True, resolve=resolver)
        assert await sink.publish([event()]) == [None]
        assert (resolver.asked, allowed.connections, forbidden.connections) == (1, 1, 0)
        allowed.drop()
        await asyncio.sleep(0)
        (refusal,) = await sink.publish([event()])  # a new connection: the name is asked again, and found out
        assert "hooks.test leads to 127.0.0.1, which is loopback" in reason(refusal)
        assert (resolver.asked, forbidden.connections) == (2, 0)
        await sink.close()


@pytest.mark.parametrize("status", [300, 301, 302, 303, 305, 307, 308])
@pytest.mark.parametrize("header", ["location", "refresh", "alt-svc", "content-location"])
async def test_an_answer_leads_nowhere_else(status: int, header: str, canary: Canary) -> None:
    async with Receiver() as allowed:
        elsewhere = f"http://127.0.0.1:{canary.port}/"
        leads = {"refresh": f"0; url={elsewhere}", "alt-svc": f'http/1.1="127.0.0.1:{canary.port}"'}
        allowed.always = answer(f"{status} Moved", f"{header}: {leads.get(header, elsewhere)}")
        resolver = Resolver(["127.0.0.1"])
        told = await reason_against(f"http://hooks.test:{allowed.port}/", resolver, ["hooks.test"])
    assert f"answered {status}" in told
    assert "redirects are not followed" in told
    assert canary.connections == 0


@pytest.mark.parametrize("mode", ["structured", "binary"])
async def test_line_ends_in_an_event_start_no_second_header(mode: str, receiver: Receiver) -> None:
    evil = "x\r\nhost: evil\r\n\r\nGET / HTTP/1.1\r\n\r\n"
    sink = WebhookSink(receiver.url(), mode=mode, allow=["127.0.0.1"], allow_http=True)
    given = event(id=evil, type=evil, source=evil, traceparent=evil)
    assert await sink.publish([given]) == [None]
    await sink.close()
    (got,) = receiver.received
    assert got.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert "evil" not in got.headers.values()


# Controls: the tricks are alive, and what is allowed gets through.


@pytest.mark.parametrize("spelled", ["127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0", "localhost"])
async def test_a_careless_client_would_have_woken_the_canary(spelled: str, canary: Canary) -> None:
    _, writer = await asyncio.open_connection(spelled, canary.port)
    writer.close()
    async with asyncio.timeout(5):
        while not canary.connections:
            await asyncio.sleep(0.005)


@pytest.mark.parametrize(
    ("host", "allow"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1", "127.0.0.0/8"),
        ("127.0.0.1.", "127.0.0.0/8"),
        ("hooks.test", "127.0.0.0/8"),
        ("hooks.test", "hooks.test"),
        ("HOOKS.Test.", "Hooks.TEST."),
        ("localhost", "localhost"),
        ("localhost", "127.0.0.1"),
        ("[::ffff:127.0.0.1]", "127.0.0.0/8"),
    ],
)
async def test_what_is_allowed_gets_through(host: str, allow: str, canary: Canary) -> None:
    assert await reason_against(f"http://{host}:{canary.port}/", Resolver(["127.0.0.1"]), [allow]) == ""
    assert len(canary.received) == 2


async def test_one_allowed_place_opens_no_other(canary: Canary) -> None:
    resolver = Resolver(["127.0.0.1"])
    for allow in (["other.test"], ["127.0.0.2"], ["10.0.0.0/8", "::1"], ["test"], ["s.test"]):
        assert PUBLIC in await reason_against(f"http://hooks.test:{canary.port}/", resolver, allow)
    assert canary.connections == 0


PUBLIC_ADDRESSES = ("8.8.8.8", "93.184.216.34", "100.63.255.255", "100.128.0.0", "172.15.255.255", "172.32.0.0",
    "223.255.255.255", "2606:4700::1111", "2001:4860:4860::8888", "2a00:1450::1", "::ffff:8.8.8.8",
    "64:ff9b::808:808")  # fmt: skip


@pytest.mark.parametrize("address", PUBLIC_ADDRESSES)
def test_public_addresses_are_recognised_as_such(address: str) -> None:
    assert why_not_public(ip_address(address)) is None


@pytest.mark.parametrize(
    "url",
    ["https://example.com", "https://example.com/?a=1", "https://xn--bcher-kva.example:8443/x%20y", "https://8.8.8.8/",
     "https://[2606:4700::1111]/", "https://a_b.example.com."],
)  # fmt: skip
def test_ordinary_urls_are_accepted(url: str) -> None:
    assert repr(WebhookSink(url)).endswith("/…')")
