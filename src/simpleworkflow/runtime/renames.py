"""Before a step runs that is not on record: is it perhaps one that is, under another name or in another place?

A rename must not repeat a paid effect. Yet a deploy may add, remove and reorder steps under runs that are under way,
and those must go on. What tells the two apart is what the code has left behind. A record (a finished step, or a started
child) that this execution has not asked for is taken for the new call in these cases, and in no other:

1. Renamed: it belongs to the same branch, the code cannot ask for its name any more, and the new call has the same
   arguments, or has a name that is nowhere on record and stands in its place (nothing that was recorded after it has
   been asked for yet, and nothing before it is still to come). The code may still have the old name as a mere word,
   such as the key of a dict; then all of this must hold, and the new call be of something that the code refers to.
2. Branch renamed: it belongs to a branch beside that of the new call, no execution of the code can make a branch of
   that name any more, and nothing was on record for the new call's own branch.
3. Moved: it has the same arguments, and the same name or one that the code cannot ask for any more, in a branch around
   or inside that of the new call. No arguments say nothing, except for a step of the same name.

So what is added runs, since every old name is still in the code; what is reordered is found by its name; what is
removed is only missed by a new call in its very place, or with its very arguments. In a scope, and in other threads,
calls come in no order: there a record is only taken for a call of the same key or number with the same arguments.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..model import payload
from ..model.records import Step
from .code_names import StepNames
from .replay import Replay, name_of, path_of


def left_behind(replay: Replay, names: StepNames, step_id: str, arguments: str | None, *, in_order: bool) -> list[Step]:
    """The records that the new call at this place may be, by the rules above."""
    left = list(replay.unasked())
    if not left:
        return []
    asked = replay.names_asked() | {name_of(step_id)}
    is_new_name = not replay.knows(name_of(step_id))
    gone = {step.step_id for step in left if not _is_known(names, asked, name_of(step.step_id))}

    def may_be(step: Step) -> bool:
        old, new, is_gone = path_of(step.step_id), path_of(step_id), step.step_id in gone
        same = step.input_json is not None and _is_alike(step.input_json, arguments)
        if old == new and not in_order:
            return is_gone and same and _count_of(step.step_id) == _count_of(step_id)
        if old == new:
            if is_gone or (same and is_new_name and _is_word(names, asked, name_of(step.step_id), name_of(step_id))):
                return (is_gone and same) or (is_new_name and _is_in_place(replay, left, gone, step))
            return False
        is_namesake = name_of(step.step_id) == name_of(step_id) and _is_alike(step.input_json, arguments)
        if (is_namesake or (is_gone and same)) and (old.startswith(new) or new.startswith(old)):
            return True
        return any(_is_renamed_branch(replay, names, *pair) for pair in _apart(old, new))

    return [step for step in left if may_be(step)]


def _is_known(names: StepNames, asked: set[str], name: str) -> bool:
    """A name that is computed is known once this execution has asked for it."""
    return name in asked or names.can_ask_for(name)


def _is_word(names: StepNames, asked: set[str], old: str, new: str) -> bool:
    """Whether the code has the old name only as a word, while what it calls now is a function or a workflow."""
    return old not in asked and not names.refers_to(old) and names.refers_to(new)


def _is_in_place(replay: Replay, left: list[Step], gone: set[str], step: Step) -> bool:
    """Whether the next thing on record in its branch is this one: what the code can still ask for comes later."""
    if not replay.is_ahead(step):
        return False
    beside = (one for one in left if path_of(one.step_id) == path_of(step.step_id) and one.step_id not in gone)
    return not any(replay.is_ahead(one) and replay.is_before(one, step) for one in beside)


def _count_of(step_id: str) -> str:
    return step_id.partition("#")[2]


def _apart(old: str, new: str) -> Iterator[tuple[str, str]]:
    """Where two places part: (the old branch, the new branch) that stand beside each other, if both go on there."""
    olds, news = old.split("/")[:-1], new.split("/")[:-1]
    for depth, (one, other) in enumerate(zip(olds, news, strict=False)):
        if one != other:
            around = "".join(f"{part}/" for part in olds[:depth])
            yield f"{around}{one}/", f"{around}{other}/"
            return


def _is_renamed_branch(replay: Replay, names: StepNames, old: str, new: str) -> bool:
    return (
        not replay.has_been_in(old)
        and not replay.is_recorded(new)
        and not names.can_ask_for(_coroutine(old))
        and _coroutine(old) != _coroutine(new)
    )


def _coroutine(branch: str) -> str:
    """`pack:0/` and `tool=key/` are branches of pack and of tool."""
    last = branch[:-1].rpartition("/")[2]
    head, _, number = last.rpartition(":")
    return head if head and number.isdigit() else last.partition("=")[0]


def _is_alike(recorded: str | None, now: str | None) -> bool:
    """No arguments, and those that were large or no JSON, are both on record as none: they may be the same."""
    if recorded is None or now is None:
        return recorded is now
    return payload.same_json(recorded, now)
