"""CloudEvents 1.0 on the wire: one JSON object (structured mode), or headers and a body (binary mode).

Written here rather than taken from the SDK: it is two small formats with a fixed specification, and the SDK says of
itself that it will break. Our tests parse what we write with that SDK.

The danger is to change what a run said on its way out. The data is JSON text and is put in as it stands: parsed and
written again, a big number would lose digits and keys could change places. The other danger is a header that is two:
binary mode percent-encodes everything in an attribute that is not plain ASCII, line ends included.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime

from .protocol import CloudEvent

STRUCTURED = "application/cloudevents+json; charset=utf-8"
DATA_TYPE = "application/json"
SEQUENCE_DIGITS = 10
"""The sequence extension orders its values as text, so a number is written with leading zeros."""


def attributes(event: CloudEvent) -> dict[str, str]:
    """Everything but the data, under CloudEvents' own names."""
    named = {
        "specversion": "1.0",
        "id": event.id,
        "source": event.source,
        "type": event.type,
        "subject": str(event.run_id),
        "time": rfc3339(event.time),
        "datacontenttype": DATA_TYPE,
        "sequence": f"{event.sequence:0{SEQUENCE_DIGITS}d}",
    }
    if event.workflow_type:
        named["workflowtype"] = event.workflow_type
    if event.traceparent:
        named["traceparent"] = event.traceparent
    return named


def structured(event: CloudEvent) -> str:
    """The whole event as one JSON object; content type `STRUCTURED`."""
    return f'{json.dumps(attributes(event), ensure_ascii=False)[:-1]}, "data": {event.data}}}'


def binary_headers(event: CloudEvent) -> dict[str, str]:
    """The event's attributes as HTTP headers; the body is its data as it stands."""
    named = attributes(event)
    headers = {"content-type": named.pop("datacontenttype")}
    return headers | {f"ce-{name}": percent_encoded(value) for name, value in named.items()}


def percent_encoded(value: str) -> str:
    """As the HTTP binding asks: everything outside U+0021 to U+007E, and the double quote and the percent sign."""
    return "".join(
        chr(byte) if 0x21 <= byte <= 0x7E and byte not in b'"%' else f"%{byte:02X}" for byte in value.encode()
    )


def rfc3339(instant: datetime) -> str:
    """In UTC, to the microsecond, with a Z."""
    return instant.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
