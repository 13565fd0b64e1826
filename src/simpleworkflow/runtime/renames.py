"""Before a step runs that is not on record: is it perhaps one that is, under another name or in another place?

A rename must not repeat a paid effect. Yet a deploy may add, remove and reorder steps under runs that are under way,
and those must go on. What tells the two apart is what the code has left behind. A record (a finished step, or a started
child) that this execution has not asked for is taken for the new call in these cases, and in no other:

1. Renamed: it belongs to the same branch, the code cannot ask for its name any more, and the new call has the same
   arguments, or has a name that is nowhere on record and stands in its place (nothing that was recorded after it has
   been asked for yet, and nothing before it is still to come). Arguments say nothing behind a sleep or a signal that
   was recorded after it: the code has been there, and has not asked. The code may still have the old name as a mere
   word, such as the key of a dict; then place and arguments must both fit, and the new call be of something that the
   code refers to.
2. Named otherwise: it belongs to the same branch, has the same arguments, and the name of the function that is called
   now under a name that is nowhere on record (`ctx.step("pay", charge, order)`).
3. Key added or dropped: it belongs to the same branch, and has the same name and arguments; one of the two has a key.
4. Branch renamed: it belongs to a branch beside that of the new call, which this execution has not made, and nothing
   was on record for the new call's own branch. The code cannot make a branch of that name any more, or it is the same
   scope with a key more or less.
5. Moved: it has the same arguments, and the same name or a former one, in a branch that this execution has not made;
   or in a branch around or inside that of the new call, where its name may also be one that the code cannot ask for
   any more. No arguments say nothing, except for a step of the same name around or inside.

So what is added runs, since every old name is still in the code; what is reordered is found by its name; what is
removed is only missed by a new call in its very place, or with its very arguments. What the code has written and not
begun yet it is still going to ask for. In a scope, and in other threads, calls come in no order: there a record is only
taken for a call of the same key or number with the same arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..model import payload
from ..model.records import Step
from ..model.step_places import name_of, path_of
from .code_names import StepNames
from .replay import Replay


@dataclass(frozen=True, slots=True)
class NewCall:
    """A durable call that is not on record."""

    step_id: str
    arguments: str | None
    own_name: str | None = None
    """That of the function, whatever name the step was given."""
    callee: Any = None
    formerly: tuple[str, ...] = ()
    in_order: bool = True
    """Whether the calls of its branch come in the order of the program."""


class LeftBehind:
    """Looks for the records that a new call may be, by the rules above."""

    def __init__(self, replay: Replay, names: StepNames, made: set[str]) -> None:
        self._replay = replay
        self._names = names
        self._made = made
        """The paths of the branches that this execution has made."""

    def look(self, call: NewCall, is_expected: Callable[[Step], bool]) -> list[Step]:
        """`is_expected`: the code is going to ask for this record."""
        left = [step for step in self._replay.unasked() if not is_expected(step)]
        if not left:
            return []
        asked = self._replay.names_asked() | {name_of(call.step_id)}
        gone = {step.step_id for step in left if not self._is_known(asked, name_of(step.step_id))}
        return [step for step in left if self._may_be(call, step, left, gone, asked)]

    def _may_be(self, call: NewCall, step: Step, left: list[Step], gone: set[str], asked: set[str]) -> bool:
        if path_of(step.step_id) != path_of(call.step_id):
            return self._is_elsewhere(call, step, step.step_id in gone)
        same = _has_same_arguments(call, step)
        if not call.in_order:
            return step.step_id in gone and same and _count_of(step.step_id) == _count_of(call.step_id)
        if same and self._is_otherwise_named(call, step):
            return True
        is_new_name = not self._replay.knows(name_of(call.step_id))
        in_place = is_new_name and self._is_in_place(left, gone, step)
        if step.step_id in gone:
            return in_place or (same and not self._replay.is_behind_a_wait(step))
        return in_place and same and self._is_word(asked, name_of(step.step_id), name_of(call.step_id))

    def _is_otherwise_named(self, call: NewCall, step: Step) -> bool:
        """Under the name of its function, or without its key, or with one."""
        old, new = name_of(step.step_id), name_of(call.step_id)
        if old == new:
            return _has_key(step.step_id) is not _has_key(call.step_id)
        return old == call.own_name and not self._replay.knows(new)

    def _is_elsewhere(self, call: NewCall, step: Step, is_gone: bool) -> bool:
        old, new = path_of(step.step_id), path_of(call.step_id)
        is_namesake = name_of(step.step_id) in {name_of(call.step_id), *call.formerly}
        if old.startswith(new) or new.startswith(old):
            is_alike = _is_alike(step.input_json, call.arguments)
            return (is_namesake and is_alike) or (is_gone and _has_same_arguments(call, step))
        if is_namesake and old not in self._made and _has_same_arguments(call, step):
            return True
        return any(self._is_renamed_branch(*pair) for pair in _apart(old, new))

    def _is_known(self, asked: set[str], name: str) -> bool:
        """A name that is computed is known once this execution has asked for it."""
        return name in asked or self._names.can_ask_for(name)

    def _is_word(self, asked: set[str], old: str, new: str) -> bool:
        """Whether the code has the old name only as a word, while what it calls now is a function or a workflow."""
        return old not in asked and not self._names.refers_to(old) and self._names.refers_to(new)

    def _is_in_place(self, left: list[Step], gone: set[str], step: Step) -> bool:
        """Whether the next thing on record in its branch is this one: what the code can still ask for comes later."""
        replay, path = self._replay, path_of(step.step_id)
        if not replay.is_ahead(step):
            return False
        beside = (one for one in left if path_of(one.step_id) == path and one.step_id not in gone)
        return not any(replay.is_ahead(one) and replay.is_before(one, step) for one in beside)

    def _is_renamed_branch(self, old: str, new: str) -> bool:
        if self._replay.has_been_in(old) or old in self._made or self._replay.is_recorded(new):
            return False
        if _coroutine(old) == _coroutine(new):
            return _is_keyed(old) is not _is_keyed(new)
        return not self._names.can_branch_to(_coroutine(old))


def _count_of(step_id: str) -> str:
    return step_id.partition("#")[2]


def _has_key(step_id: str) -> bool:
    return _count_of(step_id).startswith("=")


def _apart(old: str, new: str) -> Iterator[tuple[str, str]]:
    """Where two places part: (the old branch, the new branch) that stand beside each other, if both go on there."""
    olds, news = old.split("/")[:-1], new.split("/")[:-1]
    for depth, (one, other) in enumerate(zip(olds, news, strict=False)):
        if one != other:
            around = "".join(f"{part}/" for part in olds[:depth])
            yield f"{around}{one}/", f"{around}{other}/"
            return


def _coroutine(branch: str) -> str:
    """`pack:0/` and `tool=key/` are branches of pack and of tool."""
    head, _, number = _last(branch).rpartition(":")
    return head if head and number.isdigit() else _last(branch).partition("=")[0]


def _is_keyed(branch: str) -> bool:
    head, _, number = _last(branch).rpartition(":")
    return not (head and number.isdigit())


def _last(branch: str) -> str:
    return branch[:-1].rpartition("/")[2]


def _has_same_arguments(call: NewCall, step: Step) -> bool:
    return step.input_json is not None and _is_alike(step.input_json, call.arguments)


def _is_alike(recorded: str | None, now: str | None) -> bool:
    """No arguments, and those that were large or no JSON, are both on record as none: they may be the same."""
    if recorded is None or now is None:
        return recorded is now
    return payload.same_json(recorded, now)
