"""A sink from one line of text, as the command line takes it.

    https://example.com/hook              a webhook; http:// only with SIMPLEWORKFLOW_WEBHOOK_ALLOW_HTTP=1
    redis://host:6379/0?stream=events     a Redis stream; also rediss:// and unix:///path; &maxlen=100000
    stdout:                               lines of JSON on standard output
    file:events.jsonl                     lines of JSON at the end of a file

Secrets come by the environment, where a list of processes does not show them: SIMPLEWORKFLOW_SINK may hold the line
itself, with the password or the secret path in it, SIMPLEWORKFLOW_WEBHOOK_SECRETS one or two signing secrets
(`whsec_…`, separated by commas), SIMPLEWORKFLOW_WEBHOOK_ALLOW the networks and host names that may be called although
they are not public, SIMPLEWORKFLOW_WEBHOOK_MODE `structured` (the default) or `binary`. No message ever shows the text
itself: a mistyped URL may hold a password.
"""

from __future__ import annotations

import os
from urllib.parse import parse_qsl, urlencode

from ..model.errors import InvalidURL
from .protocol import Sink

SECRETS_VARIABLE = "SIMPLEWORKFLOW_WEBHOOK_SECRETS"
ALLOW_VARIABLE = "SIMPLEWORKFLOW_WEBHOOK_ALLOW"
ALLOW_HTTP_VARIABLE = "SIMPLEWORKFLOW_WEBHOOK_ALLOW_HTTP"
MODE_VARIABLE = "SIMPLEWORKFLOW_WEBHOOK_MODE"
PLACES = "write https://host/path, redis://host/0?stream=events, stdout: or file:events.jsonl"

_TRUE = {"1", "true", "yes", "on"}


def sink_at(text: str) -> Sink:
    """The sink that `text` names, or InvalidURL with what would be understood. Nothing is connected yet."""
    scheme, colon, rest = text.strip().partition(":")
    scheme = scheme.lower()
    if not colon:
        raise InvalidURL(f"that names no place for events; {PLACES}")
    if scheme in {"http", "https"}:
        return _webhook(text.strip())
    if scheme in {"redis", "rediss", "unix"}:
        return _redis(text.strip())
    if scheme == "stdout" and not rest.strip("/"):
        from .lines import LinesSink

        return LinesSink()
    if scheme == "file":
        return _file(rest)
    raise InvalidURL(f"{scheme[:20]!r}: is not a place for events; {PLACES}")


def _file(rest: str) -> Sink:
    from .lines import LinesSink

    path = rest.removeprefix("//") if rest.startswith("///") else rest
    if not path or path.startswith("//"):
        raise InvalidURL("file: needs the path of a file on this machine, such as file:events.jsonl")
    return LinesSink(path)


def _webhook(url: str) -> Sink:
    from .http import WebhookSink

    return WebhookSink(
        url,
        secrets=_listed(SECRETS_VARIABLE),
        allow=_listed(ALLOW_VARIABLE),
        allow_http=os.environ.get(ALLOW_HTTP_VARIABLE, "").strip().lower() in _TRUE,
        mode=os.environ.get(MODE_VARIABLE, "").strip().lower() or "structured",
    )


def _redis(url: str) -> Sink:
    from .redis import DEFAULT_STREAM, RedisSink

    place, _, query = url.partition("?")
    ours = {"stream": DEFAULT_STREAM, "maxlen": ""}
    theirs = []
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name in ours:
            ours[name] = value
        else:
            theirs.append((name, value))
    if ours["maxlen"] and not (ours["maxlen"].isascii() and ours["maxlen"].isdigit()):
        raise InvalidURL("maxlen= must be a number of events, such as maxlen=100000")
    target = f"{place}?{urlencode(theirs)}" if theirs else place
    return RedisSink(target, stream=ours["stream"], maxlen=int(ours["maxlen"]) if ours["maxlen"] else None)


def _listed(variable: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in os.environ.get(variable, "").split(",") if part.strip())
