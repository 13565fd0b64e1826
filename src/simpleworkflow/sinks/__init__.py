"""Where events go when they leave: CloudEvents, and the places that take them. Nothing here knows the database.

    from simpleworkflow.sinks import CloudEvent, WebhookSink

A sink is loaded when its name is asked for: every program that uses simpleworkflow passes through this file, few of
them send events, and hardly any needs more than one sink.
"""

from typing import TYPE_CHECKING

from .protocol import CloudEvent, Refusal, Sink, SinkGone

__all__ = [
    "CallingSink",
    "CloudEvent",
    "LinesSink",
    "RedisSink",
    "Refusal",
    "SeveralSinks",
    "Sink",
    "SinkGone",
    "WebhookSink",
    "sink_at",
    "structured",
]

if TYPE_CHECKING:
    from .at import sink_at
    from .calling import CallingSink
    from .envelope import structured
    from .http import WebhookSink
    from .lines import LinesSink
    from .redis import RedisSink
    from .several import SeveralSinks
else:  # hidden from type checkers, which would believe that every name exists

    def __getattr__(name: str) -> object:
        match name:
            case "CallingSink":
                from . import calling

                return calling.CallingSink
            case "LinesSink":
                from . import lines

                return lines.LinesSink
            case "RedisSink":
                from . import redis

                return redis.RedisSink
            case "SeveralSinks":
                from . import several

                return several.SeveralSinks
            case "WebhookSink":
                from . import http

                return http.WebhookSink
            case "sink_at":
                from . import at

                return at.sink_at
            case "structured":
                from . import envelope

                return envelope.structured
        raise AttributeError(f"module 'simpleworkflow.sinks' has no attribute {name!r}")
