"""Retry policy: how often a run is executed, and how long it waits in between.

The wait grows geometrically from `initial` by the factor `backoff` up to `max_delay`: a broken dependency is not
hammered. Jitter only ever adds to it: many runs that failed in the same second must not come back in the same second,
and none may come back earlier than its author allowed. With jitter 0.5 and max_delay "5m" the longest wait is 7m 30s.

The policy knows no clock and no dice; the caller passes `chance`. A policy is checked when it is written down, not
when a run fails at night: contradictions raise InvalidPolicy or InvalidDuration at import of the user's module.
Durations are kept as seconds afterwards, so that Retry(initial="1m") == Retry(initial=60).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from .duration import Duration, human, seconds
from .errors import InvalidPolicy, PermanentError

MAX_ATTEMPTS = 1000


@dataclass(frozen=True, slots=True)
class Retry:
    """When to try again. `max_attempts` counts every execution, the first included: 1 means no retry."""

    max_attempts: int = 3
    initial: Duration = "1s"
    backoff: float = 2.0
    max_delay: Duration = "5m"
    jitter: float = 0.5
    non_retryable: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        _check_attempts(self.max_attempts)
        self._keep("initial", seconds(self.initial, what="Retry.initial"))
        self._keep("max_delay", seconds(self.max_delay, what="Retry.max_delay"))
        self._keep("backoff", _real("backoff", self.backoff))
        self._keep("jitter", _real("jitter", self.jitter))
        self._keep("non_retryable", _classes(self.non_retryable))
        self._check_sense()

    def delay(self, failures: int, chance: float) -> float:
        """Seconds to wait after `failures` failed executions; `chance` in [0, 1) is the caller's roll of the dice."""
        if failures < 1:
            raise InvalidPolicy(f"Retry.delay: failures is {failures!r}; there is no delay before the first failure")
        if not 0 <= chance < 1:
            raise InvalidPolicy(f"Retry.delay: chance is {chance!r}; pass a number in [0, 1), such as random.random()")
        return self._growth(failures) * (1 + self.jitter * chance)

    def retries(self, error: BaseException) -> bool:
        """Whether this error deserves another execution, as far as its kind is concerned."""
        return not isinstance(error, (PermanentError, *self.non_retryable))

    def _growth(self, failures: int) -> float:
        initial, max_delay = seconds(self.initial), seconds(self.max_delay)
        try:
            return min(max_delay, initial * self.backoff ** (failures - 1))
        except OverflowError:  # beyond any float, so beyond the longest; nothing times anything stays nothing
            return max_delay if initial else 0.0

    def _keep(self, field: str, value: object) -> None:
        object.__setattr__(self, field, value)  # frozen, and not yet handed out

    def _check_sense(self) -> None:
        initial, max_delay = seconds(self.initial), seconds(self.max_delay)
        if self.backoff < 1:
            raise InvalidPolicy(f"Retry.backoff is {self.backoff}; it must be 1 or more, or the waits would shrink")
        if max_delay < initial:
            told = f"Retry.max_delay ({human(max_delay)}) is shorter than Retry.initial ({human(initial)})"
            raise InvalidPolicy(f"{told}; raise max_delay or lower initial")
        if not 0 <= self.jitter <= 1:
            raise InvalidPolicy(f"Retry.jitter is {self.jitter}; it must be from 0 (none) to 1 (up to twice the wait)")


def _check_attempts(value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidPolicy(f"Retry.max_attempts is {value!r}; it must be a whole number from 1 to {MAX_ATTEMPTS}")
    if not 1 <= value <= MAX_ATTEMPTS:
        raise InvalidPolicy(f"Retry.max_attempts is {value}; it must be from 1 (no retry) to {MAX_ATTEMPTS}")


def _real(field: str, value: object) -> float:
    """A finite float; float, because an int backoff would compute exact powers of unbounded size."""
    try:
        number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    except OverflowError:
        number = None
    if number is None or not isfinite(number):
        raise InvalidPolicy(f"Retry.{field} is {value!r}; it must be a finite number")
    return number


def _classes(value: object) -> tuple[type[BaseException], ...]:
    given = tuple(value) if isinstance(value, tuple | list | set | frozenset) else (value,)
    for item in given:
        if not (isinstance(item, type) and issubclass(item, BaseException)):
            raise InvalidPolicy(f"Retry.non_retryable holds {item!r}; list exception classes, such as (KeyError,)")
    return given


DEFAULT_RETRY = Retry()
