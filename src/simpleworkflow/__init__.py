"""simpleworkflow: durable workflows for Python, on one SQLite file or on PostgreSQL.

import simpleworkflow as swf
app = swf.App()

@app.workflow("demo.greet.v1")
async def greet(ctx: swf.Context, name: str) -> str:
    return f"Hello, {name}!"

with app.sync.worker():
    print(app.sync.run(greet, "Ada"))

Nothing is loaded until a name is used: then all of public.py is. pgqrs's names are in simpleworkflow.compat.pgqrs.
"""

from typing import TYPE_CHECKING

from .version import __version__ as __version__

if TYPE_CHECKING:
    from .public import *  # noqa: F403 - that is what it is for
    from .public import __all__ as __all__
else:  # hidden from type checkers, which would believe that every name exists
    del TYPE_CHECKING  # it is no name of ours

    def __getattr__(name: str) -> object:
        found = _look_up(name)
        globals()[name] = found  # the next one finds it without asking
        return found

    def __dir__() -> list[str]:
        return sorted({*_public_names(), *(name for name in globals() if name.startswith("__"))})

    def _look_up(name: str) -> object:
        # Never `from . import x` here: that asks this package for x, which ends here again.
        if name == "testing":
            import simpleworkflow.testing as found

            return found
        # What tools probe for (__path__, __wrapped__) loads nothing.
        if name == "__all__" or (not name.startswith("_") and name in _public_names()):
            import simpleworkflow.public as public

            return getattr(public, name)
        from .missing import missing

        raise missing(name)

    def _public_names() -> list[str]:
        import simpleworkflow.public as public

        return getattr(public, "__all__", [])  # none while it is still being loaded
