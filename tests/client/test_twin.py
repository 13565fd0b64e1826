"""The blocking twin says everything that the async door says, with the same parameters, and is freshly generated."""

from __future__ import annotations

import inspect
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, get_overloads

import pytest

import simpleworkflow as swf
from simpleworkflow.client.generated import sync
from simpleworkflow.client.generated.sync import SyncRunCalls, SyncRunHandle, SyncTriggerCalls
from simpleworkflow.client.handle import RunHandle
from simpleworkflow.client.run_calls import RunCalls
from simpleworkflow.client.trigger_calls import TriggerCalls

ROOT = Path(__file__).parents[2]
NAMESPACES = ["activity", "definitions", "doctor", "migrations", "outbox", "retention", "schedules", "workers"]


def pairs() -> list[tuple[type, type]]:
    app = swf.App("unused.db")
    parts = [type(getattr(app, name)) for name in NAMESPACES]
    pairs: list[tuple[type, type]] = [(part, getattr(sync, f"Sync{part.__name__}")) for part in parts]
    return [*pairs, (TriggerCalls, SyncTriggerCalls), (RunCalls, SyncRunCalls), (RunHandle, SyncRunHandle)]


def awaited(cls: type) -> dict[str, Any]:
    """Public methods that are awaited or iterated with `async for`."""
    methods = {name: inspect.unwrap(one) for name, one in vars(cls).items() if inspect.isfunction(one)}
    return {
        name: method
        for name, method in methods.items()
        if not name.startswith("_") and (inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method))
    }


METHODS = [(blocking, name, method) for cls, blocking in pairs() for name, method in awaited(cls).items()]


def test_the_committed_twin_is_fresh() -> None:
    done = subprocess.run(
        [sys.executable, "tools/twin.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_stale_twin_is_noticed(tmp_path: Path) -> None:
    """The check above can fail: with one more method in the source it does."""
    client = tmp_path / "client"
    shutil.copytree(ROOT / "src/simpleworkflow/client", client)
    handle = client / "handle.py"
    handle.write_text(handle.read_text() + "\n    async def extra(self, n: int) -> int:\n        return n\n")
    code = f"""
import sys; sys.path.insert(0, {str(ROOT / "tools")!r}); sys.argv = ["twin", "--check"]
import twin; from pathlib import Path
twin.SOURCE = Path({str(client)!r}); twin.TARGET = twin.SOURCE / "generated" / "sync.py"
twin.main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "sync.py is stale; run: make gen" in done.stderr


@pytest.mark.parametrize(("blocking", "name", "method"), METHODS, ids=[f"{b.__name__}.{n}" for b, n, _ in METHODS])
def test_every_awaited_method_has_a_blocking_twin(blocking: type, name: str, method: Any) -> None:
    twin = getattr(blocking, name)
    assert not inspect.iscoroutinefunction(twin)
    assert not inspect.isasyncgenfunction(twin)
    ours, theirs = inspect.signature(method), inspect.signature(twin)
    assert list(theirs.parameters.values()) == list(ours.parameters.values())
    blocked = str(ours.return_annotation).replace("AsyncIterator", "Iterator").replace("RunHandle[", "SyncRunHandle[")
    assert str(theirs.return_annotation) == blocked
    assert len(get_overloads(twin)) == len(get_overloads(method))
    assert (twin.__doc__ or "") == (method.__doc__ or "")


def test_everything_public_that_is_not_awaited_is_there_too() -> None:
    plain = {
        name
        for name, member in vars(RunHandle).items()
        if not name.startswith("_") and callable(member) and name not in awaited(RunHandle)
    }
    assert plain == set()
    assert {"handle", "worker", "migrate", "close", *NAMESPACES} <= set(dir(swf.App("unused.db").sync))
    parts = {name for name, part in vars(swf.App("unused.db")).items() if hasattr(part, "_client")}
    assert parts == set(NAMESPACES)
    assert {"id", "is_new"} <= set(dir(SyncRunHandle))


def test_the_twin_does_what_the_door_does(app: swf.App) -> None:
    @app.workflow("a.double.v1")
    def double(ctx: swf.SyncContext, n: int) -> int:
        return 2 * n

    assert app.sync is app.sync
    app.sync.doctor.check()
    handle = app.sync.trigger(double, 4, idempotency_key="k")
    assert (handle.is_new, repr(handle)) == (True, f"<SyncRunHandle {handle.id}>")
    assert handle.hold("wait").is_held
    assert not handle.resume().is_held
    with app.sync.worker():
        assert handle.result("20s") == 8
        assert app.sync.handle(handle.id, double).result() == 8
        assert [h.result(20) for h in app.sync.trigger_many(double, [1, 2])] == [2, 4]
        assert app.sync.run(double, 5, timeout=20) == 10
    assert "succeeded" in handle.explain()
    assert [event.type for event in handle.events()][:2] == ["created", "held"]
    assert len(list(app.sync.runs(type="a.double.v1", status="succeeded"))) == 4
    assert next(app.sync.runs()).type == "a.double.v1"
    with pytest.raises(swf.AlreadyFinished):
        handle.cancel()
    assert handle.retry().status == "pending"
    assert app.sync.delete(handle.id).status == "cancelled"
    assert [count.runs for count in app.sync.activity.counts()] == [3]
    assert [one.applied is not None for one in app.sync.migrations.status()] == [True] * len(
        app.sync.migrations.status()
    )
