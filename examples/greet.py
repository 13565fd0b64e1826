"""The first example of the README: a worker and a trigger in one process.

    python examples/greet.py

Kill it with SIGKILL while it sleeps and run it again: it goes on with the same word. Runs are kept in
./simpleworkflow.db, or where SIMPLEWORKFLOW_URL says.
"""

import random

import simpleworkflow as swf

app = swf.App()  # ./simpleworkflow.db; or App("postgresql://…")


@app.workflow("demo.greet.v1")
async def greet(ctx: swf.Context, name: str) -> str:
    word = await ctx.step(random.choice, ["Hello", "Salut", "Hallo"])
    await ctx.sleep("10s")  # kill -9 here, run again: the same word
    return f"{word}, {name}!"


if __name__ == "__main__":
    with app.sync.worker():
        print(app.sync.run(greet, "Ada", idempotency_key="ada"))
