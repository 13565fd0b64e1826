"""What becomes of an error besides the database row: a line in the log, and a call to the hooks of the program.

One call per attempt of a step that failed, and one per execution of a run that ended badly. WARNING while something
will be tried again or the workflow may still handle it, ERROR when a run has ended or waits for an operator: alerts
are made on levels.

Dangers: an error may hold personal data (`log_errors` says how much of it may be written), an exception may refuse to
be shown, a hook may raise. None of this may change what becomes of the run, so nothing here raises.
"""

from __future__ import annotations

import inspect
import logging
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

from ..config import LogErrors
from ..model.duration import human
from ..model.errors import RunTimedOut
from ..model.failure import one_line, storable, traces_of
from ..model.moves import Ending
from ..model.records import Lease
from ..model.states import Status
from ..store.url import mask_text
from .labels import about

log = logging.getLogger("simpleworkflow.execute")

LONGEST = 32_000
"""Characters of a traceback."""
_LED_TO = "\n\nThe above exception was the direct cause of the following exception:\n\n"


class Outcome(StrEnum):
    """What becomes of what has failed."""

    RETRY = "retry"
    """It will be tried again."""
    FAILED = "failed"
    """A run: it has ended. A step: the workflow gets StepFailed, and may handle it."""
    HELD = "held"
    """The run waits for an operator."""
    TIMED_OUT = Status.TIMED_OUT.value
    """The run has ended: its deadline passed while it was executing."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What a hook of `app.on_error` gets: one attempt that failed, of a step or of the whole run."""

    run_id: UUID
    type: str
    step: str | None
    """The name of the step; None when it is the run itself."""
    step_id: str | None
    """The place of the step in the run: its branch, name and number or key."""
    attempt: int
    """Which attempt this was, of the step or of the run; the first is 1."""
    max_attempts: int
    outcome: Outcome
    retry_in: float | None
    """Seconds until the next attempt; None when there is none."""
    error: BaseException
    """The exception itself, with its traceback."""
    worker: str
    """Who executed it."""

    @property
    def traceback(self) -> str:
        """Of `error`, as the log has it: the tracebacks that are on record of a failed step or child come first."""
        return _traceback(self.error)

    @property
    def will_retry(self) -> bool:
        return self.outcome is Outcome.RETRY


ErrorHook = Callable[[Failure], Any]


class Failures:
    """Tells the log and the hooks; one per worker."""

    def __init__(self, detail: LogErrors, hooks: Sequence[ErrorHook], worker: str) -> None:
        self._detail = detail
        self._hooks = hooks
        self._worker = worker

    def of_step(
        self,
        lease: Lease,
        step: tuple[str, str],
        error: BaseException,
        *,
        attempt: int,
        most: int,
        retry_in: float | None,
    ) -> None:
        """One attempt of a step, given by name and place. For good it is a warning too: the workflow may handle it."""
        outcome = Outcome.FAILED if retry_in is None else Outcome.RETRY
        failure = Failure(lease.id, lease.type, *step, attempt, most, outcome, retry_in, error, self._worker)
        self._tell(failure, lease)

    def of_run(self, lease: Lease, ending: Ending, error: BaseException | None) -> None:
        """One execution that ended badly; without an error its deadline has passed."""
        outcome = _outcome_of(ending)
        retry_in = ending.delay if outcome is Outcome.RETRY else None
        error = RunTimedOut(ending.last_error) if error is None else error
        spent, most = lease.attempt + lease.crashes + 1, lease.max_attempts
        failure = Failure(lease.id, lease.type, None, None, spent, most, outcome, retry_in, error, self._worker)
        self._tell(failure, lease)

    def _tell(self, failure: Failure, lease: Lease) -> None:
        try:
            self._log(failure, lease)
        except Exception as error:
            self._contained("a failure could not be logged", failure, lease, error)
        for hook in tuple(self._hooks):
            try:
                answer = hook(failure)
                if inspect.iscoroutine(answer):
                    answer.close()
                    raise TypeError("it returned a coroutine, which nobody awaits: a hook is a plain def")
            except (Exception, SystemExit) as error:
                self._contained(f"the error hook {_name_of(hook)} failed", failure, lease, error)

    def _log(self, failure: Failure, lease: Lease) -> None:
        ends = failure.step is None and not failure.will_retry
        labels: dict[str, object] = {"attempt": failure.attempt, "error_type": type(failure.error).__name__}
        if failure.step_id is not None:
            labels["step"] = failure.step_id
        level = logging.ERROR if ends else logging.WARNING
        if not log.isEnabledFor(level):
            return
        error, words = failure.error, (_what_happened(failure), self._shown(failure.error))
        extra = about(lease, worker=self._worker, **labels)
        is_traced = self._detail == "traceback" and error.__traceback__ is not None
        details = (type(error), error, error.__traceback__) if is_traced else None
        record = log.makeRecord(log.name, level, __file__, 0, "%s: %s", words, details, "_log", extra)
        if is_traced:
            record.exc_text = _traceback(error)  # what formatters write: not megabytes, and nothing that a file refuses
        log.handle(record)

    def _contained(self, what: str, failure: Failure, lease: Lease, error: BaseException) -> None:
        """The last resort: whatever happens here fails nothing."""
        with suppress(Exception):
            details = error if self._detail == "traceback" else None
            extra = about(lease, worker=self._worker, error_type=type(error).__name__)
            log.warning("%s for run %s: %s", what, failure.run_id, self._shown(error), exc_info=details, extra=extra)

    def _shown(self, error: BaseException) -> str:
        return type(error).__name__ if self._detail == "type" else mask_text(one_line(error))


def _traceback(error: BaseException) -> str:
    own = "".join(traceback.format_exception(error)).rstrip("\n")
    text = storable(_LED_TO.join((*traces_of(error), own)))
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]}\n… {len(text) - LONGEST} characters …\n{text[-LONGEST // 2 :]}"
    return mask_text(text)


def _outcome_of(ending: Ending) -> Outcome:
    if ending.hold_reason is not None:
        return Outcome.HELD
    if ending.status is Status.TIMED_OUT:
        return Outcome.TIMED_OUT
    return Outcome.FAILED if ending.status.is_terminal else Outcome.RETRY


def _what_happened(failure: Failure) -> str:
    run = f"run {failure.run_id} ({failure.type})"
    what = run if failure.step is None else f"step {failure.step} of {run}"
    count = f"attempt {failure.attempt} of {failure.max_attempts}"
    if failure.retry_in is not None:
        soon = f"in {human(round(failure.retry_in, 3))}" if failure.retry_in >= 0.001 else "at once"
        return f"{what} failed and will be retried {soon} ({count})"
    if failure.outcome is Outcome.HELD:
        is_spent = failure.attempt >= failure.max_attempts
        return f"{what} failed and is held for an operator ({count})" if is_spent else f"{what} is held for an operator"
    if failure.outcome is Outcome.TIMED_OUT:
        return f"{what} timed out while it was executing ({count})"
    return f"{what} failed for good ({count})"


def _name_of(hook: ErrorHook) -> str:
    return str(getattr(hook, "__qualname__", type(hook).__qualname__))
