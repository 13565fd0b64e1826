"""Failures as JSON, and what happens after one.

`describe` must succeed for every exception, however hostile: it never serialises user objects, replaces what JSON
cannot hold and cuts what is too long. A failure that cannot be recorded would be a run that is silently stuck.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from typing import Any

from . import moves, payload
from .errors import InvalidInput, RetryAfter, RunEnded, SignalTimeout, StepFailed
from .moves import Ending
from .retry import Retry

MESSAGE_LIMIT = 2_000
TRACEBACK_LIMIT = 16_000
CAUSE_DEPTH = 5


def describe(error: BaseException, *, permanent: bool = False, also: tuple[str, ...] = ()) -> tuple[str, str]:
    """(error as JSON text, one line for people)."""
    described = _as_dict(error, CAUSE_DEPTH)
    if permanent:
        described["permanent"] = True
    if steps := dict.fromkeys((*failed_steps(error), *also)):
        described["steps"] = list(steps)
    return payload.encode(described, what="error"), one_line(error)


def steps_of(error_json: str | None) -> list[str]:
    """The same, from an error on record."""
    story = payload.decode(error_json or "null", what="error")
    steps = story.get("steps") if isinstance(story, dict) else None
    return [step for step in steps if isinstance(step, str)] if isinstance(steps, list) else []


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


def one_line(error: BaseException) -> str:
    message = _text(error)
    kind = type(error).__name__
    if isinstance(error, BaseExceptionGroup):
        message = f"{message}: {one_line(error.exceptions[0])}"
    return _clean(f"{kind}: {message}" if message else kind, 500).replace("\n", " ")


def failure(kind: str, message: str) -> tuple[str, str]:
    """A failure that no exception stands for."""
    return payload.encode({"type": kind, "message": message}, what="error"), message


def _as_dict(error: BaseException, depth: int) -> dict[str, Any]:
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    described: dict[str, Any] = {
        "type": _clean(type(error).__qualname__, 200),
        "module": _clean(str(type(error).__module__ or ""), 200),
        "message": _clean(_text(error), MESSAGE_LIMIT),
        "traceback": _clean(_traceback(error), TRACEBACK_LIMIT),
    }
    if isinstance(error, RetryAfter) and isinstance(code := getattr(error, "code", None), str):
        described["code"] = _clean(code, 200)
    if cause is not None and depth > 0:
        described["cause"] = _as_dict(cause, depth - 1)
    return described


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
    if not policy.retries(error) or _is_settled(error):
        return moves.fail(lease, as_json, line, elapsed=elapsed)
    clears = tuple(dict.fromkeys((*failed_steps(error), *also)))
    if spent >= lease.max_attempts:
        if hold:
            return moves.exhaust(lease, as_json, line, elapsed=elapsed, clears=clears)
        return moves.fail(lease, as_json, line, elapsed=elapsed)
    delay = error.delay if isinstance(error, RetryAfter) else policy.delay(spent, chance)
    return moves.retry(lease, as_json, line, delay=delay, elapsed=elapsed, clears=clears)
