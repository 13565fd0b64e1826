"""Retry policy: how often a run is executed, and how long it waits in between.

The wait grows geometrically from `base` by `factor` up to `cap`, so that a broken dependency is not hammered. Jitter
only ever adds to it: many runs that failed in the same second must not come back in the same second, and none may
come back earlier than its author allowed. With jitter 0.5 and cap "5m" the longest wait is therefore 7m 30s.

The policy knows no clock and no dice; the caller passes `chance`. A policy is checked when it is written down, not
when a run fails at night: contradictions raise InvalidPolicy or InvalidDuration at import of the user's module.
Durations are kept as seconds afterwards, so that Retry(base="1m") == Retry(base=60).
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
    base: Duration = "1s"
    factor: float = 2.0
    cap: Duration = "5m"
    jitter: float = 0.5
    non_retryable: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        _check_attempts(self.max_attempts)
        self._keep("base", seconds(self.base, what="Retry.base"))
        self._keep("cap", seconds(self.cap, what="Retry.cap"))
        self._keep("factor", _real("factor", self.factor))
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
        base, cap = seconds(self.base), seconds(self.cap)
        try:
            return min(cap, base * self.factor ** (failures - 1))
        except OverflowError:  # beyond any float, so beyond the cap; nothing times anything stays nothing
            return cap if base else 0.0

    def _keep(self, field: str, value: object) -> None:
        object.__setattr__(self, field, value)  # frozen, and not yet handed out

    def _check_sense(self) -> None:
        base, cap = seconds(self.base), seconds(self.cap)
        if self.factor < 1:
            raise InvalidPolicy(f"Retry.factor is {self.factor}; it must be 1 or more, or the waits would shrink")
        if cap < base:
            raise InvalidPolicy(
                f"Retry.cap ({human(cap)}) is shorter than Retry.base ({human(base)}); raise cap or lower base"
            )
        if not 0 <= self.jitter <= 1:
            raise InvalidPolicy(f"Retry.jitter is {self.jitter}; it must be from 0 (none) to 1 (up to twice the wait)")


def _check_attempts(value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidPolicy(f"Retry.max_attempts is {value!r}; it must be a whole number from 1 to {MAX_ATTEMPTS}")
    if not 1 <= value <= MAX_ATTEMPTS:
        raise InvalidPolicy(f"Retry.max_attempts is {value}; it must be from 1 (no retry) to {MAX_ATTEMPTS}")


def _real(field: str, value: object) -> float:
    """A finite float; float, because an int factor would compute exact powers of unbounded size."""
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
