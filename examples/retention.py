"""How long finished runs are kept: the App says it, its workers do it; a call counts first, or does it at once.

    python examples/retention.py

Runs are kept in ./simpleworkflow.db, or where SIMPLEWORKFLOW_URL says.
"""

import simpleworkflow as swf

app = swf.App(
    keep=[
        swf.Retention("report.*", "7 days", failed="30 days"),  # the most specific prefix decides
        swf.Retention("invoice.*"),  # for ever
        swf.Retention("*", "365 days", deleted="7 days"),
    ]
)


@app.workflow("report.draft.v1")
async def draft(ctx: swf.Context, topic: str) -> str:
    return f"a report on {topic}"


@app.workflow("invoice.send.v1")
async def send(ctx: swf.Context, number: int) -> str:
    return f"invoice {number} sent"


if __name__ == "__main__":
    with app.sync.worker():  # it prunes by keep=, every few minutes; nothing here is old enough yet
        for topic in ("sales", "stock", "staff"):
            print(app.sync.run(draft, topic))
        print(app.sync.run(send, 7))
    counted = app.sync.retention.prune(older_than="0s", prefix="report.*", dry_run=True)
    print(f"{counted.total} reports would go")
    done = app.sync.retention.prune(older_than="0s", prefix="report.*")
    print(f"{done.total} reports are gone, {sum(1 for _ in app.sync.runs())} run is left")
