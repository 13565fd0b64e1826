"""Where in a run a durable call was made: the identity under which its outcome is remembered.

    fulfil                        the root branch:        charge#0   @sleep#0
    gather(pack(a), pack(b))      two branches of it:     pack:0/weigh#0   pack:1/weigh#0

A run is executed again from the top after every resume, and must find each recorded outcome where it left it, however
its concurrent parts are interleaved this time. So a branch is named when its task is *created*, by the qualified name
of its coroutine and a number within its parent: creation order is the program's own, completion order is not. Within a
branch the uses of a name are counted. Adding, removing or reordering other names changes nothing.

A scope (`with ctx.scope("agent")`) is a branch without branches of its own: whatever tasks a library makes in there,
their calls are counted together, so that the names of its private coroutines are not part of any identity. Calls of
tasks that live side by side have no order that a replay could repeat, however they happen to follow each other this
time; they need keys, or are refused. Which tasks those are is known by where and when each was made (`Turns`).

Traps: wait_for makes a task on some versions of Python and none on others, so its task is transparent; as_completed
makes its tasks in the order of a set, so durable calls inside them are refused; tasks that a step's own body creates
are not part of the workflow and do not count.
"""

from __future__ import annotations

import asyncio
import contextvars
from types import CoroutineType, FrameType
from typing import Any

from ..model.errors import InvalidName, InvalidWorkflow
from ..model.records import Lease
from ..python_internals import frame_above, frame_of, has_ended, locals_of, module_of

BRANCH: contextvars.ContextVar[Branch | None] = contextvars.ContextVar("simpleworkflow_branch", default=None)
IN_STEP: contextvars.ContextVar[Body | None] = contextvars.ContextVar("simpleworkflow_in_step", default=None)

_IN_PLACES = str.maketrans({"%": "%25", "#": "%23", "/": "%2F"})
"""How a key is written inside a place, where these have a meaning."""

LONGEST_NAME = 200
LONGEST_PLACE = 950
_LONGEST_KEY = 255


class Body:
    """The body of a step while it runs. Its tasks are stopped with it, and belong to no run when it is over,
    since a connection pool that was opened inside a step must outlive it."""

    __slots__ = ("attempt", "is_over", "lease", "name", "step_id", "tasks")

    def __init__(self, lease: Lease, name: str, step_id: str, attempt: int) -> None:
        self.lease = lease
        self.name = name
        self.step_id = step_id
        self.attempt = attempt
        self.is_over = False
        self.tasks: set[Any] | None = None
        """Those that it has made, once there is one."""


class Turns:
    """Of a scope: who has made the latest call without a key. Such calls and the births of tasks are numbered."""

    __slots__ = ("last", "line", "number", "task")

    def __init__(self) -> None:
        self.number = 0
        self.last = 0
        """The number of that call."""
        self.line: tuple[int, ...] = ()
        self.task: object = None
        """The one whose line it is; None in a thread."""

    def next(self) -> int:
        self.number += 1
        return self.number


class Branch:
    """One line of execution of a run."""

    __slots__ = (
        "_keys", "_line", "_parent", "_spawned", "_turns", "_uses", "callers", "lost", "made", "needs_key", "path",
        "unordered",
    )  # fmt: skip

    def __init__(self, path: str = "", *, parent: Branch | None = None, unordered: bool = False) -> None:
        self.path = path
        self.made: set[str] = set() if parent is None else parent.made
        """The paths of all branches of its run that this execution has made."""
        self.made.add(path)
        self.callers: list[tuple[object, Any]] | None = None
        """In a scope: its durable calls with the tasks that made them; the finished ones are dropped now and then."""
        self._parent = parent
        self.lost = False
        """It was a contender of a race that another one has won: nothing more is done in it."""
        self.unordered = unordered
        self.needs_key = False
        self._keys: set[str] = set()
        self._uses: dict[str, int] = {}
        self._spawned: dict[str, int] = {}
        self._turns: Turns | None = None
        """In a scope: shared by its tasks, as are the counts and the keys."""
        self._line: tuple[int, ...] = ()
        """In a scope: the births of the tasks in there that have made it, and its own."""

    def identify(self, name: str, key: str | None = None) -> str:
        """The identity of the next durable call of this name; a key takes the place of the count."""
        if key is not None:
            step_id = f"{self.path}{name}#={_check_key(key)}"
            if step_id in self._keys:
                raise InvalidName(f"the key {key[:40]!r} names two calls of {name}; the second would be the first")
            self._keys.add(step_id)
            return _check_length(step_id)
        if self.needs_key:
            raise InvalidWorkflow(
                f"{name}: calls from other threads come in no order; give each a key (swf.step(key=…))"
            )
        if self._turns is not None:
            self._take_turn(self._turns, name)
        number = self._uses.get(name, 0)
        self._uses[name] = number + 1
        step_id = f"{self.path}{name}#{number}"
        return step_id if len(step_id) <= LONGEST_PLACE else _check_length(step_id)  # most need no call

    def place_of_next(self, name: str, key: str | None) -> str:
        """Where the next call of this name would be; nothing is counted."""
        return f"{self.path}{name}#{self._uses.get(name, 0)}" if key is None else f"{self.path}{name}#={key}"

    def take_next(self, name: str, key: str | None) -> bool:
        """Count a call of another name as the next one of this; False when its key has been used already."""
        if key is None:
            self._uses[name] = self._uses.get(name, 0) + 1
            return True
        place = self.place_of_next(name, key)
        is_free = place not in self._keys
        self._keys.add(place)
        return is_free

    def _take_turn(self, turns: Turns, name: str) -> None:
        """In a scope: a call without a key must come after the latest one by the order of the program."""
        if not self._follows(turns):
            raise InvalidWorkflow(
                f"{name}: several tasks of the scope {self.path} make durable calls side by side, in no order that a "
                'replay could repeat; give each of them a scope of its own with a key (with ctx.scope("tool", key=…)), '
                "or each step a key (swf.step(key=…))"
            )
        turns.line, turns.last, turns.task = self._line, turns.next(), _current_task()

    def _follows(self, turns: Turns) -> bool:
        """Whether what this task does now comes after the latest call, on every execution.

        It does when the task was made after that call, by the code that has made both; or when it has itself made the
        task of that call, and nothing is under way there any more: it has waited for it.
        """
        mine, other = self._line, turns.line
        if mine == other:
            return turns.task is _current_task() or not self._is_under_way(turns.task)  # two may share a context
        shared = next((n for n, (one, two) in enumerate(zip(mine, other, strict=False)) if one != two), None)
        shared = min(len(mine), len(other)) if shared is None else shared
        if len(other) > shared and self._is_under_way(turns.task):
            return False
        return len(mine) == shared or mine[shared] > turns.last

    def _is_under_way(self, task: object) -> bool:
        self._forget_finished()
        return any(maker is task for maker, _ in self.callers or ())

    def _forget_finished(self) -> None:
        if self.callers:
            self.callers[:] = [(task, call) for task, call in self.callers if not has_ended(call)]

    def spawn(self, coroutine_name: str, *, unordered: bool = False) -> Branch:
        number = self._spawned.get(coroutine_name, 0)
        self._spawned[coroutine_name] = number + 1
        path = f"{self.path}{coroutine_name}:{number}/"
        return Branch(path, parent=self, unordered=unordered or self.unordered)

    def scope(self, name: str, key: str | None) -> Branch:
        if key is None:
            if self._turns is not None:
                self._take_turn(self._turns, name)
            branch = self.spawn(name)
        else:
            path = f"{self.path}{name}={_check_key(key).translate(_IN_PLACES)}/"
            if path in self._keys:
                raise InvalidName(f"the key {key[:40]!r} names two scopes {name}; the second would be the first")
            self._keys.add(path)
            branch = Branch(path, parent=self, unordered=self.unordered)
        branch.callers, branch._turns = [], Turns()
        branch.needs_key = self.needs_key
        return branch

    def for_task(self, turns: Turns) -> Branch:
        """In a scope: the same branch for a task that is made in there."""
        branch = Branch(self.path, parent=self, unordered=self.unordered)
        branch._keys, branch._uses, branch._spawned = self._keys, self._uses, self._spawned
        branch.callers, branch._turns, branch.needs_key = self.callers, turns, self.needs_key
        branch._line = (*self._line, turns.next())
        self._forget_finished()
        return branch

    def for_strangers(self) -> Branch:
        """The same branch for calls from another thread, which come in no order: each needs a key."""
        branch = Branch(self.path, parent=self, unordered=self.unordered)
        branch._keys, branch.needs_key = self._keys, True
        return branch

    @property
    def root(self) -> Branch:
        branch = self
        while branch._parent is not None:
            branch = branch._parent
        return branch

    @property
    def is_lost(self) -> bool:
        """Whether it, or a branch around it, has lost a race."""
        branch: Branch | None = self
        while branch is not None and not branch.lost:
            branch = branch._parent
        return branch is not None


def check_name(name: str, what: str = "step") -> str:
    if not isinstance(name, str):
        raise InvalidName(f"a {what} is named by a text, not by {name!r:.40}")
    if not 1 <= len(name) <= LONGEST_NAME or not name.isprintable():
        raise InvalidName(f"{name[:40]!r} cannot name a {what}; use 1 to {LONGEST_NAME} printable characters")
    if "#" in name or "/" in name or name.startswith("@"):
        raise InvalidName(f"{name[:40]!r} cannot name a {what}: #, / and a leading @ mark places inside a run")
    return name


def _current_task() -> object:
    try:
        return asyncio.current_task()
    except RuntimeError:  # a plain def workflow opens scopes and asks for numbers in its own thread
        return None


def _check_length(step_id: str) -> str:
    if len(step_id) > LONGEST_PLACE:
        told = f"{LONGEST_PLACE} is the most, and tasks inside tasks add up"
        raise InvalidName(f"the place {step_id[:60]!r}… has {len(step_id)} characters; {told}")
    return step_id


def _check_key(key: str) -> str:
    if not isinstance(key, str):
        raise InvalidName(f"a key is a text, not {key!r:.40}: write key=str(…)")
    if not 1 <= len(key) <= _LONGEST_KEY or not key.isprintable():
        raise InvalidName(f"{key[:40]!r} cannot be a key; use 1 to {_LONGEST_KEY} printable characters")
    return key


def branch_of_new_task(coro: Any, context: contextvars.Context) -> Branch | None:
    """The branch that a task about to be created belongs to; None when it is not part of a workflow's own code."""
    branch = context.get(BRANCH)
    if branch is None or context.get(IN_STEP) is not None:
        return None
    if branch._turns is not None:
        return branch.for_task(branch._turns)
    maker = _maker(frame_above(2))
    if maker in {"wait_for", "_contend"}:
        return branch
    inner = _inside_anyio(coro)
    name = getattr(inner, "__qualname__", None) or type(inner).__qualname__
    return branch.spawn(str(name).replace("/", "."), unordered=maker == "as_completed")


def _inside_anyio(coro: Any) -> Any:
    """The coroutine that a task of anyio's runs: the name of anyio's own wrapper around it differs between versions."""
    frame = frame_of(coro)
    if frame is None or not module_of(frame).startswith("anyio."):
        return coro
    values = list(locals_of(frame).values())
    for holder in values[:]:
        names = (*getattr(type(holder), "__slots__", ()), *getattr(holder, "__dict__", ()))
        values += [getattr(holder, name, None) for name in names]
    return next((value for value in values if isinstance(value, CoroutineType)), coro)


def _maker(frame: FrameType | None) -> str | None:
    """Which function of asyncio, if any of interest, is creating the task."""
    for _ in range(12):
        if frame is None or not _is_ours(module_of(frame)):
            return None
        if frame.f_code.co_name in {"wait_for", "as_completed", "_contend"}:
            return frame.f_code.co_name
        frame = frame.f_back
    return None


def _is_ours(module: str) -> bool:
    return module == "asyncio" or module.startswith(("asyncio.", f"{__package__}."))
