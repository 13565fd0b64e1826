"""Testing workflows without waiting: an App on a database in memory, a clock that the test owns, steps replaced.

    async with swf.testing.env(app) as env:
        env.stub(charge, returns="receipt-1")
        handle = await app.trigger(fulfil, order)
        await env.advance("2 days")                     # sleeps, retries and timeouts of two days, at once
        await handle.signal("approved", {"by": "ada"})
        assert await handle.result() == ["label-1"]

`await env.run(fulfil, order)` does the same for a run that needs nobody: it skips all the time that the run would wait.
`with swf.testing.serving(app, second_release):` lets other code serve a type, as a deploy would.
Blocking tests write `with swf.testing.env(app) as env:` and use `app.sync`; pytest has the fixture `workflow_env`.
"""

from .env import Env, SyncEnv, env
from .serving import serving
from .stubs import Stub

__all__ = ["Env", "Stub", "SyncEnv", "env", "serving"]
