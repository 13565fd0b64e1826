"""A workflow that is started by the clock: every two seconds here, every working day at nine in Berlin as well.

    python examples/schedule.py

The schedules stand beside the code, and a worker writes them down when it starts. Run it again after a pause: the slot
that was missed meanwhile is made up for, once. `simpleworkflow schedule list` shows both.
"""

import asyncio

import simpleworkflow as swf

app = swf.App()


@app.schedule("0 9 * * MON-FRI", tz="Europe/Berlin", payload="the day", name="every-morning")
@app.schedule(every="2s", payload="two seconds", overlap="skip", name="every-two-seconds")
@app.workflow("shop.report.v1")
async def report(ctx: swf.Context, about: str) -> str:
    assert ctx.schedule is not None
    return f"report about {about} before {ctx.schedule.at:%H:%M:%S}"


async def main() -> None:
    async with app.worker():
        for schedule in await app.schedules.all():
            print(f"{schedule.name}: {schedule.rhythm} ({schedule.tz})")
        handle = app.handle(await app.schedules.run_now("every-two-seconds"), report)
        print("asked for:", (await handle.result("30s")).rpartition(" before")[0])
        await asyncio.sleep(3)
        last = (await app.schedules.get("every-two-seconds")).last_run_id
        assert last is not None
        print("by the clock:", (await app.handle(last, report).result("30s")).rpartition(" before")[0])
    await app.close()


if __name__ == "__main__":
    asyncio.run(main())
