"""Names in on_cancel= and on_failure= that nobody has defined: a worker warns of them when it starts.

A misspelt one starts runs that wait for ever, and does so only when something has gone wrong.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ..model.records import Definition
from ..store import Ledger
from ..store.operations import workers
from .claim import Claimer

log = logging.getLogger("simpleworkflow.worker")


async def warn_of_the_unknown(ledger: Ledger, claimer: Claimer, served: Sequence[Definition]) -> None:
    named = [
        (definition.name, option, other)
        for definition in served
        for option, other in (("on_cancel", definition.on_cancel), ("on_failure", definition.dead_letter))
        if other is not None and not claimer.knows(other)
    ]
    if not named:
        return
    known = {one.name for one in await ledger.run(workers.definitions(sorted({other for _, _, other in named})))}
    for type, option, other in named:
        if other not in known:
            log.warning(
                "%s says %s=%r, a workflow that this App does not have and no worker has served yet; if the "
                "name is right, declare it: app.declare(%r)",
                type, option, other, other,
            )  # fmt: skip
