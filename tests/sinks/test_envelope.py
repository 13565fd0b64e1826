"""CloudEvents as others read them: with the SDK, from both modes."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from uuid import UUID

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from hypothesis import given
from hypothesis import strategies as st

from simpleworkflow.sinks import envelope

from .made import NOON, event

RUN = UUID("01890000-0000-7000-8000-000000000001")
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
FULL = event(7, run=RUN, traceparent=TRACE, data='{"b": 12345678901234567890123, "a": "é✓", "f": 1.10}')


def read(message: HTTPMessage) -> dict[str, object]:
    parsed = from_http_event(message)
    return {
        "id": parsed.get_id(),
        "source": parsed.get_source(),
        "type": parsed.get_type(),
        "subject": parsed.get_subject(),
        "time": parsed.get_time(),
        "specversion": parsed.get_specversion(),
        "datacontenttype": parsed.get_datacontenttype(),
        "sequence": parsed.get_extension("sequence"),
        "workflowtype": parsed.get_extension("workflowtype"),
        "traceparent": parsed.get_extension("traceparent"),
        "data": parsed.get_data(),
    }


EXPECTED = {
    "id": f"{RUN}-7",
    "source": "/simpleworkflow/shop",
    "type": "order.paid",
    "subject": str(RUN),
    "time": NOON,
    "specversion": "1.0",
    "datacontenttype": "application/json",
    "sequence": "0000000007",
    "workflowtype": "shop.order.v1",
    "traceparent": TRACE,
    "data": {"b": 12345678901234567890123, "a": "é✓", "f": 1.1},
}


def test_the_sdk_reads_structured_mode_as_it_was_meant() -> None:
    message = HTTPMessage({"content-type": envelope.STRUCTURED}, envelope.structured(FULL).encode())
    assert read(message) == EXPECTED


def test_the_sdk_reads_binary_mode_as_it_was_meant() -> None:
    message = HTTPMessage(envelope.binary_headers(FULL), FULL.data.encode())
    assert read(message) == EXPECTED


def test_what_is_not_known_of_an_event_is_absent_and_not_empty() -> None:
    removed = replace(event(), workflow_type="")
    assert not {"traceparent", "workflowtype"} & envelope.attributes(removed).keys()
    assert all(envelope.binary_headers(removed).values())


@pytest.mark.parametrize(
    "data", ["null", '"text"', "[1,  2]", '{"z":1,"a":1e400,"n":100000000000000000001}', '{\n"a": 1\n}']
)
def test_data_is_passed_on_to_the_letter(data: str) -> None:
    text = envelope.structured(event(data=data))
    assert text.endswith(f'"data": {data}}}')
    assert json.loads(text)["data"] == json.loads(data)


def test_sequences_sort_as_text_in_the_order_of_their_numbers() -> None:
    numbers = [1, 2, 9, 10, 99, 100, 12345678]
    written = [envelope.attributes(event(number))["sequence"] for number in numbers]
    assert written == sorted(written)
    assert [int(one) for one in written] == numbers


def test_time_is_written_in_utc_with_a_z() -> None:
    berlin = datetime(2030, 7, 1, 14, 0, tzinfo=timezone(timedelta(hours=2)))
    assert envelope.rfc3339(berlin) == "2030-07-01T12:00:00.000000Z"


def test_odd_characters_in_attributes_survive_both_modes() -> None:
    odd = event(source='/shop "one"/100%/größe/€/🙂/a b')
    message = HTTPMessage(envelope.binary_headers(odd), odd.data.encode())
    assert read(message)["source"] == odd.source
    assert envelope.binary_headers(event(source="/a b%€"))["ce-source"] == "/a%20b%25%E2%82%AC"
    structured = HTTPMessage({"content-type": envelope.STRUCTURED}, envelope.structured(odd).encode())
    assert read(structured)["source"] == odd.source


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_no_text_can_end_a_header_line_early(text: str) -> None:
    encoded = envelope.percent_encoded(text)
    assert all("!" <= character <= "~" for character in encoded)
