"""Events for the tests of sinks, as the relay would hand them over."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID, uuid4

from simpleworkflow.sinks.protocol import CloudEvent, Refusal

NOON = datetime(2030, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)


def event(
    sequence: int = 1,
    *,
    run: UUID | None = None,
    type: str = "order.paid",
    data: str = '{"total": 5}',
    id: str | None = None,
    traceparent: str | None = None,
    source: str = "/simpleworkflow/shop",
) -> CloudEvent:
    run = run or uuid4()
    return CloudEvent(
        id=id or f"{run}-{sequence}",
        source=source,
        type=type,
        time=NOON,
        run_id=run,
        sequence=sequence,
        workflow_type="shop.order.v1",
        data=data,
        traceparent=traceparent,
    )


def story(length: int, run: UUID | None = None) -> list[CloudEvent]:
    """Several events of one run."""
    run = run or uuid4()
    return [event(sequence, run=run, data=str(sequence)) for sequence in range(1, length + 1)]


def reason(answer: Refusal | None) -> str:
    assert answer is not None, "it was taken"
    return answer.reason
