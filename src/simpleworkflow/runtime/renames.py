"""Before a step runs that is not on record: is it perhaps one that is, under another name or in another place?

A rename must not repeat a paid effect. Yet a deploy may add, remove and reorder steps under runs that are under way,
and those must go on. What tells the two apart is what the code has left behind. A record (a finished step, or a started
child) that this execution has not asked for is taken for the new call in these cases, and in no other:

1. Renamed: it belongs to the same branch, the code cannot ask for its name any more, and either nothing that was
   recorded after it has been asked for yet (the new call stands in its place), or it had the same arguments.
2. Branch renamed: it belongs to a branch beside that of the new call, no execution of the code can make a branch of
   that name any more, and nothing was on record for the new call's own branch.
3. Moved: it has the same arguments, and the same name or one that the code cannot ask for any more, in a branch around
   or inside that of the new call.

So what is added runs, since every old name is still in the code; what is reordered is found by its name; what is
removed is only missed by a new call in its very place, or with its very arguments.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..model import payload
from ..model.records import Step
from .code_names import StepNames
from .replay import Replay, name_of, path_of


def left_behind(replay: Replay, names: StepNames, step_id: str, arguments: str | None) -> list[Step]:
    """The records that the new call at this place may be, by the rules above."""
    return [step for step in replay.unasked() if _may_be(replay, names, step, step_id, arguments)]


def _may_be(replay: Replay, names: StepNames, step: Step, step_id: str, arguments: str | None) -> bool:
    old, new = path_of(step.step_id), path_of(step_id)
    is_alike, is_gone = _is_alike(step.input_json, arguments), not names.can_ask_for(name_of(step.step_id))
    if old == new:
        return is_gone and (is_alike or replay.is_ahead(step))
    is_namesake = is_gone or name_of(step.step_id) == name_of(step_id)
    if is_namesake and is_alike and (old.startswith(new) or new.startswith(old)):
        return True
    return any(_is_renamed_branch(replay, names, *pair) for pair in _apart(old, new))


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
