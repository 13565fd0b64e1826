"""Takes every figure of the benchmark, and reads the settings of the database that the figures depend on."""

from __future__ import annotations

from ..store.operations.health import durability
from .figures import Figure
from .measures import Measures, OnProgress
from .place import Place
from .plan import Plan


async def take(place: Place, plan: Plan, on_progress: OnProgress) -> tuple[dict[str, str], list[Figure]]:
    settings = {setting.name: setting.value for setting in await place.app._client.run(durability())}
    return settings, await Measures(place.app, plan, on_progress).take()
