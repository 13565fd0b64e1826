"""pgqrs's names are in simpleworkflow.compat.pgqrs, and who looks for them at the top is told so."""

from __future__ import annotations

import pytest

import simpleworkflow as swf
from simpleworkflow.compat import pgqrs

NAMES = [
    "Consumer",
    "Pause",
    "RunRecord",
    "RunStatus",
    "Store",
    "SyncWorkflowContext",
    "TransientError",
    "TransientStepError",
    "WorkflowContext",
    "consumer",
    "open_store",
    "poll_all",
    "workflow",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_pgqrs_is_in_its_module_and_the_top_level_says_where(name: str) -> None:
    assert name in pgqrs.__all__
    assert name not in dir(swf)
    assert not hasattr(swf, name)
    with pytest.raises(AttributeError, match=rf"^simpleworkflow has no {name}: .*simpleworkflow\.compat\.pgqrs"):
        getattr(swf, name)
    with pytest.raises(ImportError, match=rf"^simpleworkflow has no {name}: .*simpleworkflow\.compat\.pgqrs"):
        exec(f"from simpleworkflow import {name}")


def test_a_workflow_decorated_without_an_app_gets_the_line_to_write() -> None:
    sentence = r'app = swf\.App\(\), then @app\.workflow\("orders\.fulfil\.v1"\)'
    with pytest.raises(AttributeError, match=sentence):

        @swf.workflow("orders.fulfil.v1")  # type: ignore[attr-defined]
        async def named(ctx: swf.Context) -> None: ...

    with pytest.raises(AttributeError, match=sentence):

        @swf.workflow  # type: ignore[attr-defined]
        async def bare(ctx: swf.Context) -> None: ...
