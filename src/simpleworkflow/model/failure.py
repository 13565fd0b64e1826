"""Failures as JSON, and what happens after one.

`describe` must succeed for every exception, however hostile: it never serialises user objects, replaces what JSON
cannot hold and cuts what is too long. A failure that cannot be recorded would be a run that is silently stuck.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from itertools import islice
from typing import Any

from . import moves, payload
from .class_names import class_name, home_of
from .errors import (
    InvalidDuration,
    InvalidFilter,
    InvalidInput,
    InvalidName,
    InvalidPolicy,
    InvalidSchedule,
    InvalidWorkflow,
    Misfit,
    PayloadError,
    Recorded,
    RetryAfter,
    RunEnded,
    SignalTimeout,
    StepFailed,
)
from .moves import Ending
from .retry import Retry

MESSAGE_LIMIT = 2_000
TRACEBACK_LIMIT = 16_000
HOLD_REASON_LIMIT = 1_000
CAUSE_DEPTH = 5
DATA_LIMIT = 65_536
MOST_MEMBERS = 10
MEMBER_CAUSE_DEPTH = 2
MEMBER_DATA_LIMIT = 8_192
MEMBER_TRACEBACK_LIMIT = 4_000
MOST_BASES = 16

MISTAKES = (
    InvalidDuration,
    InvalidFilter,
    InvalidInput,
    InvalidName,
    InvalidPolicy,
    InvalidSchedule,
    InvalidWorkflow,
    PayloadError,
)
"""Refusals of our own calls: the same code with the same values is refused again."""


def describe(error: BaseException, *, permanent: bool = False, also: tuple[str, ...] = ()) -> tuple[str, str]:
    """(error as JSON text, one line for people)."""
    told: dict[str, Any] = {}
    if permanent:
        told["permanent"] = True
    if isinstance(error, Misfit) and error.new is not None:
        told["new"] = error.new
    if steps := dict.fromkeys((*failed_steps(error), *also)):
        told["steps"] = list(steps)
    try:
        text = payload.encode(_as_dict(error, CAUSE_DEPTH) | told, what="error")
    except PayloadError:  # too much in its causes and members together
        text = payload.encode(_as_dict(error, 0) | told, what="error")
    return text, one_line(error)


def steps_of(error_json: str | None) -> list[str]:
    """The same, from an error on record."""
    details = payload.decode(error_json or "null", what="error")
    steps = details.get("steps") if isinstance(details, dict) else None
    return [step for step in steps if isinstance(step, str)] if isinstance(steps, list) else []


def doubtful_call(error_json: str | None, hold_reason: str | None) -> str | None:
    """The place of the call whose error holds this run, since it may be on record under another name; None when the run
    is held for another reason, since its newest error may be an old one."""
    details = payload.decode(error_json or "null", what="error")
    if (
        not isinstance(details, dict)
        or hold_reason is None
        or hold_reason_of(str(details.get("message"))) != hold_reason
    ):
        return None
    found = details.get("new")
    return found if isinstance(found, str) else None


def hold_reason_of(message: str) -> str:
    return _clean(message, HOLD_REASON_LIMIT)


def failed_steps(error: BaseException) -> tuple[str, ...]:
    """The recorded pieces of the run whose failure this error is: a retry of the run does them again."""
    return tuple(dict.fromkeys(origin.step_id for origin in _origins(error, CAUSE_DEPTH) if origin.step_id))


def _origins(error: BaseException, depth: int) -> Iterator[StepFailed | RunEnded | SignalTimeout | InvalidInput]:
    """The error itself, what it was raised from on purpose, and the members of a group; not what was merely at hand."""
    if isinstance(error, StepFailed | RunEnded | SignalTimeout | InvalidInput):
        yield error
        return
    inner = [*(error.exceptions if isinstance(error, BaseExceptionGroup) else ()), error.__cause__]
    for one in inner if depth > 0 else []:
        if one is not None:
            yield from _origins(one, depth - 1)


def _is_settled(error: BaseException) -> bool:
    """Whether another execution would only meet the same end: a child's end or a wait that is over stays as it is."""
    return any(
        origin.is_permanent if isinstance(origin, StepFailed) else bool(origin.step_id)
        for origin in _origins(error, CAUSE_DEPTH)
    )


def is_mistake(error: BaseException) -> bool:
    """Whether a call of ours was made wrongly: no further attempt can mend that."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(is_mistake, error.exceptions))
    return isinstance(error, MISTAKES)


def one_line(error: BaseException) -> str:
    message = _text(error)
    kind = type(error).__name__
    if isinstance(error, BaseExceptionGroup):
        message = f"{message}: {one_line(error.exceptions[0])}"
    return _clean(f"{kind}: {message}" if message else kind, 500).replace("\n", " ")


def failure(kind: str, message: str) -> tuple[str, str]:
    """A failure that no exception stands for."""
    return payload.encode({"type": kind, "message": message}, what="error"), message


def _as_dict(error: BaseException, depth: int, *, is_member: bool = False) -> dict[str, Any]:
    """`is_member`: of a group, whose traceback has those of its members."""
    described: dict[str, Any] = {
        "type": _clean(type(error).__qualname__, 200),
        "module": _clean(home_of(type(error)), 200),
        "bases": _bases(error),
        "message": _clean(_text(error), MESSAGE_LIMIT),
    }
    if not is_member:
        described["traceback"] = _clean(_traceback(error), TRACEBACK_LIMIT)
    if isinstance(error, RetryAfter) and isinstance(code := getattr(error, "code", None), str):
        described["code"] = _clean(code, 200)
    described |= _data(error, MEMBER_DATA_LIMIT if is_member else DATA_LIMIT)
    if isinstance(error, BaseExceptionGroup) and depth > 0 and not is_member:
        members = islice(_members(error), MOST_MEMBERS)
        described["members"] = [_as_dict(one, MEMBER_CAUSE_DEPTH, is_member=True) for one in members]
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    most = (MEMBER_TRACEBACK_LIMIT if is_member else TRACEBACK_LIMIT) if depth > 0 else 0
    if (known := _on_record(error, most)) is not None:
        described["cause"] = known
    elif cause is not None and depth > 0:
        described["cause"] = _as_dict(cause, depth - 1, is_member=is_member)
        if error.__cause__ is None:
            described["while_handling"] = True
    return described


def _members(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for one in group.exceptions:
        if isinstance(one, BaseExceptionGroup):
            yield from _members(one)
        else:
            yield one


def _bases(error: BaseException) -> list[str]:
    """What an error is besides its own class, so that it can be asked for on every replay."""
    try:
        kinds = [kind for kind in type(error).__mro__[1:] if kind not in (BaseException, object)]
        return [_clean(class_name(kind), 400) for kind in kinds[:MOST_BASES]]
    except Exception:
        return []


def _data(error: BaseException, limit: int) -> dict[str, Any]:
    """What the exception itself wants to be remembered, as JSON; its failure to say so is on record, too."""
    try:
        tell = getattr(type(error), "__swf_data__", None)
        if tell is None:
            return {}
        return {"data": payload.decode(payload.encode(tell(error), limit=limit, what="__swf_data__"))}
    except KeyboardInterrupt:
        raise
    except BaseException as problem:
        return {"data_error": one_line(problem)}


def _on_record(error: BaseException, most: int) -> Any:
    """What an error of ours stands for: the original is nowhere at hand, on no execution, but it is on record."""
    try:
        details = brief(error.error, traceback=most) if isinstance(error, Recorded) else None
        return payload.decode(payload.encode(details, what="error")) if details else None
    except Exception:
        return None  # somebody made it by hand


_KEPT = ("type", "module", "bases", "message", "code", "data", "data_error", "while_handling")
"""Not whose fault it was among the steps and calls of that run (`steps`, `new`), nor whether that run was to be tried
again (`permanent`): this is for those who cannot do either."""


def brief(error: Any, depth: int = CAUSE_DEPTH, *, traceback: int = 0) -> dict[str, Any] | None:
    """An error on record as others keep it: what it was and what it said, and so many characters of each traceback."""
    if not isinstance(error, dict):
        return None
    kept = {key: error[key] for key in _KEPT if key in error}
    if traceback and isinstance(lines := error.get("traceback"), str):
        kept["traceback"] = lines[-traceback:]
    members, cause = (
        error.get("members"),
        brief(error.get("cause"), depth - 1, traceback=traceback) if depth > 0 else None,
    )
    if isinstance(members, list) and depth > 0:
        kept["members"] = [brief(one, depth - 1, traceback=traceback) for one in members[:MOST_MEMBERS]]
    return kept if cause is None else {**kept, "cause": cause}


def traces(details: Any, depth: int = 2 * CAUSE_DEPTH) -> Iterator[str]:
    """The tracebacks of an error on record, first what led to others; one line where there is none, as of a child."""
    if not isinstance(details, dict) or depth <= 0:
        return
    members = details.get("members")
    for one in members if isinstance(members, list) else []:  # their own are in the traceback of the group
        yield from traces(one.get("cause") if isinstance(one, dict) else None, depth - 1)
    yield from traces(details.get("cause"), depth - 1)
    lines = details.get("traceback")
    if isinstance(lines, str) and lines:
        yield lines.rstrip("\n")
    elif details.get("type"):
        yield f"{details['type']}: {details.get('message')}"


def traces_of(error: BaseException | None, depth: int = 2 * CAUSE_DEPTH) -> Iterator[str]:
    """The same of what an exception stands for, its causes and its members too; not their own, which Python prints."""
    if error is None or depth <= 0:
        return
    for one in error.exceptions if isinstance(error, BaseExceptionGroup) else ():
        yield from traces_of(one, depth - 1)
    yield from traces_of(error.__cause__ or (None if error.__suppress_context__ else error.__context__), depth - 1)
    if isinstance(error, Recorded):
        yield from traces(getattr(error, "error", None))


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(its message could not be read)"


def _traceback(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(type(error), error, error.__traceback__, chain=False))
    except Exception:
        return ""


def storable(text: str) -> str:
    """Without what a database refuses: NUL and lone surrogates."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\x00", "\\0")


def _clean(text: str, limit: int) -> str:
    sound = storable(text)
    return sound if len(sound) <= limit else sound[: limit - 1] + "…"


def after_failure(
    lease: Any,
    error: BaseException,
    policy: Retry,
    *,
    elapsed: float,
    chance: float,
    hold: bool = False,
    also: tuple[str, ...] = (),
) -> Ending:
    """Retry or fail: attempts and crashes together are the executions that ended badly.

    `also` names steps that failed beside the one whose error is at hand: a retry does them again too.
    """
    as_json, line = describe(error, also=also)
    spent = lease.attempt + lease.crashes + 1
    if not policy.retries(error) or is_mistake(error) or _is_settled(error):
        return moves.fail(lease, as_json, line, elapsed=elapsed)
    clears = tuple(dict.fromkeys((*failed_steps(error), *also)))
    if spent >= lease.max_attempts:
        if hold:
            return moves.exhaust(lease, as_json, line, elapsed=elapsed, clears=clears)
        return moves.fail(lease, as_json, line, elapsed=elapsed)
    delay = error.delay if isinstance(error, RetryAfter) else policy.delay(spent, chance)
    return moves.retry(lease, as_json, line, delay=delay, elapsed=elapsed, clears=clears)
