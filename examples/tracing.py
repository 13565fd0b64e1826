"""One trace from a web request to the last step of a child run, printed as the tree that a tracing backend would draw.

    pip install '/path/to/simpleworkflow[otel]' opentelemetry-sdk
    python examples/tracing.py

simpleworkflow needs no set-up for this: it sees the provider that the program has set. Instead of the exporter below, a
real program has one that sends: opentelemetry-exporter-otlp. See docs/tracing.md.
"""

import time

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import simpleworkflow as swf

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)

app = swf.App()


@app.workflow("trace.label.v1")
async def label(ctx: swf.Context, parcel: str) -> str:
    return await ctx.step("print", lambda: f"label for {parcel}")


@app.workflow("trace.order.v1")
async def fulfil(ctx: swf.Context, parcel: str) -> str:
    await ctx.step("charge", lambda: "charged")
    await ctx.wait_for_signal("approved")  # gives up its slot: the execution ends here, and another one goes on
    trace.get_current_span().set_attribute("parcel.count", 1)  # your own attributes, on the span of this execution
    return await ctx.run(label, parcel)


def draw(spans: list[ReadableSpan], parent: int | None = None, depth: int = 0) -> None:
    for span in spans:
        if (span.parent.span_id if span.parent else None) == parent:
            outcome = (span.attributes or {}).get("simpleworkflow.outcome")
            print("   " * depth + span.name + (f" ({outcome})" if outcome else ""))
            draw(spans, span.get_span_context().span_id, depth + 1)


if __name__ == "__main__":
    with app.sync.worker():
        with trace.get_tracer("shop").start_as_current_span("POST /orders"):
            order = app.sync.trigger(fulfil, "a lamp")
        while order.get().status is not swf.Status.PAUSED:
            time.sleep(0.02)
        order.signal("approved")
        print(order.result("30s"))
    draw(sorted(exporter.get_finished_spans(), key=lambda span: span.start_time or 0))
