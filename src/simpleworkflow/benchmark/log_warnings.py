"""Collects the warnings that the package logs during the benchmark: a rate that contains an outage is no measure."""

from __future__ import annotations

import logging
from typing import Self

from ..store.url import mask_text

MOST_KEPT = 3


class LogWarnings(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if len(self.texts) < MOST_KEPT:
            try:
                self.texts.append(mask_text(record.getMessage()))
            except Exception:
                self.handleError(record)

    def __enter__(self) -> Self:
        logging.getLogger("simpleworkflow").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("simpleworkflow").removeHandler(self)
