"""Logs that machines can read and that keep secrets: what the worker command writes, and any program may use.

    handler = logging.StreamHandler()
    handler.setFormatter(simpleworkflow.logs.JsonFormatter())

Our own code logs through `logging`, about runs with `extra=` (runtime/labels.py); `RunFilter` gives the same to lines
that steps and workflows write by loggers of their own. We log no payload, though an error of user code may quote one
(`Settings.log_errors`). What others log is beyond us, so this is the last line of defence: every line, tracebacks
included, loses the passwords of URLs and key=value pairs in it. The dangers are a line that breaks its reader (control
characters, values that are not JSON) and a line that is never written because formatting it failed: nothing here
raises.
"""

from __future__ import annotations

import json
import logging
import math
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Literal, TextIO

from .runtime import tracing
from .runtime.labels import here
from .store.url import mask_text

__all__ = ["JsonFormatter", "MaskPasswords", "RunFilter", "TextFormatter", "configure", "mask_text"]

Format = Literal["text", "json"]

TEXT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
DEEPEST = 6
LONGEST = 10_000
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_STANDARD = frozenset({*logging.makeLogRecord({}).__dict__, "message", "asctime", "taskName"})
"""What every record has; the rest came by extra=."""

log = logging.getLogger("simpleworkflow")


def configure(format: Format = "text", level: str = "INFO", stream: TextIO | None = None) -> None:
    """Log to `stream` (standard error), unless the program has set up logging already; what nobody catches is logged
    as well."""
    with standing_by(_handler(format, stream), level):
        pass


@contextmanager
def standing_by(handler: logging.Handler, level: str) -> Iterator[None]:
    """For a program that loads the user's code, which may set up logging itself. While it is loaded the handler takes
    what finds no other one; afterwards it becomes the root's, unless that code has given the root handlers of its own
    (a handler that was there from the start would make `logging.basicConfig` do nothing)."""
    handler.addFilter(RunFilter())
    root, warnings, before = logging.getLogger(), logging.getLogger("py.warnings"), logging.lastResort
    if not root.handlers:
        root.setLevel(level.upper())
    logging.lastResort = handler
    warnings.addHandler(handler)  # Python gives this logger a handler that drops everything if it has none
    logging.captureWarnings(True)
    sys.excepthook = _log_uncaught
    threading.excepthook = _log_uncaught_in_thread
    try:
        yield
    finally:
        logging.lastResort = before
        warnings.removeHandler(handler)
        logging.basicConfig(level=level.upper(), handlers=[handler])
        _let_all_be_heard()


def _let_all_be_heard() -> None:
    """Handlers that others have made learn which run a line belongs to; and dictConfig silences every logger that it
    does not name, ours included, unless it is told not to: a worker whose failures nobody sees is worse."""
    loggers = [one for one in logging.root.manager.loggerDict.values() if isinstance(one, logging.Logger)]
    for logger in (logging.root, *loggers):
        if logger.name.partition(".")[0] == log.name:
            logger.disabled = False
        for handler in logger.handlers:
            if not any(isinstance(one, RunFilter) for one in handler.filters):
                handler.addFilter(RunFilter())


def _handler(format: Format, stream: TextIO | None = None) -> logging.Handler:
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter(TEXT))
    return handler


def loading_for(format: Format, level: str) -> AbstractContextManager[None]:
    """`configure` around the loading of the user's code."""
    return standing_by(_handler(format), level)


class JsonFormatter(logging.Formatter):
    """One JSON object per line: ts, level, logger, message; run_id, workflow_type, epoch, worker, step, trace_id and
    span_id where they are known; whatever else came by extra=; exception."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": mask_text(_message(record)),
        }
        ids = tracing.current_ids()
        if ids is not None:
            line["trace_id"], line["span_id"] = ids
        line |= {key: _plain(value, key) for key, value in record.__dict__.items() if key not in _STANDARD}
        if told := self._exception(record):
            line["exception"] = mask_text(told)
        return json.dumps(line)

    def _exception(self, record: logging.LogRecord) -> str:
        told = record.exc_text or ""
        if record.exc_info and not told:
            told = self.formatException(record.exc_info)
        return f"{told}\n{record.stack_info}".strip() if record.stack_info else told


class TextFormatter(logging.Formatter):
    """For people: one line, and a traceback below it; the run is named when the words do not name it."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's own name
        run_id, step = getattr(record, "run_id", None), getattr(record, "step", None)
        if run_id is not None and str(run_id) not in record.message:
            record.message += f" (run {run_id})" if step is None else f" (run {run_id}, step {step})"
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        record.msg, record.args = _message(record), ()
        return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", mask_text(super().format(record)))


class RunFilter(logging.Filter):
    """Gives every line that is written while a run is executed, by any logger, the attributes run_id, workflow_type,
    epoch, worker, step and attempt: `handler.addFilter(RunFilter())`. The worker command does so by itself."""

    def filter(self, record: logging.LogRecord) -> bool:
        fields, known = here(), record.__dict__
        if fields is not None and known.get("run_id", fields["run_id"]) == fields["run_id"]:
            for name, value in fields.items():
                known.setdefault(name, value)
        return True


class MaskPasswords(logging.Filter):
    """For handlers with a formatter of your own: `handler.addFilter(MaskPasswords())`."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.msg, str):  # structlog passes dicts on, for its own formatter
            record.msg, record.args = mask_text(_message(record)), ()
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        record.exc_text = record.exc_text and mask_text(record.exc_text)
        return True


def _message(record: logging.LogRecord) -> str:
    """Whatever the record says; logging's own answer to arguments that do not fit would print them unmasked."""
    try:
        return record.getMessage()
    except Exception:
        return f"{_shown(record.msg)} (its arguments do not fit)"


def _plain(value: Any, key: str = "", depth: int = 0) -> Any:
    """As JSON can hold it."""
    if "password" in key.lower() or "passwd" in key.lower():
        return "***"
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, dict) and depth < DEEPEST:
        return {_shown(name): _plain(inner, _shown(name), depth + 1) for name, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset) and depth < DEEPEST:
        return [_plain(inner, "", depth + 1) for inner in value]
    return mask_text(_shown(value))


def _shown(value: Any) -> str:
    try:
        return str(value)[:LONGEST]
    except Exception:
        return f"<{type(value).__name__} that cannot be shown>"


def _log_uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
        name = args.thread.name if args.thread is not None else "that is gone"
        details = (args.exc_type, args.exc_value, args.exc_traceback)
        log.error("the thread %s broke: %s", name, args.exc_type.__name__, exc_info=details)


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
    else:
        log.critical("the program broke: %s", kind.__name__, exc_info=(kind, error, trace))
