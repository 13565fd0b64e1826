"""Databases for tests, used more than once: a fresh copy of the template costs several times what wiping one costs.

The danger is what a test leaves behind, so a database comes back only when nothing can be told from a fresh one:

* **Someone still connected**, or a worker that was started and forgotten: sessions are ended and the database gets a
  new name, so that whoever still tries the old one finds nothing, as after a DROP.
* **Rows**: tables are emptied and their numbers start again. Rows that the migrations wrote must be untouched.
* **A changed schema, changed rights or settings**: the catalog is compared with that of the template.
* **Statistics**, by which plans are made and which `doctor` reads: forgotten.

Where any of this cannot be had, the database is dropped and the next test gets a fresh copy.
"""

from __future__ import annotations

import itertools
from typing import Any

import psycopg
from psycopg import sql

from .postgres import Server

_TRIES = 3  # to find nobody connected
_USERS = 16_384  # the first object id that is not the system's own

_CATALOG = f"""
SELECT format('%s %s %s %s', oid, relname, reloptions, relacl) AS line FROM pg_class WHERE oid >= {_USERS}
UNION ALL SELECT format('column %s %s', attrelid, xmin) FROM pg_attribute WHERE attrelid >= {_USERS}
UNION ALL SELECT format('default %s %s', oid, xmin) FROM pg_attrdef
UNION ALL SELECT format('constraint %s %s', oid, xmin) FROM pg_constraint
UNION ALL SELECT format('trigger %s %s', oid, xmin) FROM pg_trigger
UNION ALL SELECT format('function %s %s', oid, xmin) FROM pg_proc WHERE oid >= {_USERS}
UNION ALL SELECT format('schema %s %s', oid, xmin) FROM pg_namespace
UNION ALL SELECT format('extension %s', extname) FROM pg_extension
UNION ALL SELECT format('setting %s', setconfig) FROM pg_db_role_setting d
  WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
_TABLES = f"""
SELECT format('%I.%I', relnamespace::regnamespace, relname) FROM pg_class
WHERE oid >= {_USERS} AND relkind = 'r' AND pg_relation_size(oid) > 0
"""


class Recycled:
    """Hands out databases that look like fresh copies of the template."""

    def __init__(self, server: Server, template: str) -> None:
        self._server = server
        self._template = template
        self._serial = itertools.count()
        self._free: list[str] = []
        with psycopg.connect(server.url(template), autocommit=True) as connection:
            self._wipes = connection.info.server_version >= 140_000  # older ones cannot wait for a session's end
            self._written = sorted(name for (name,) in connection.execute(_TABLES))
            self._look = self._looks(connection)

    def take(self) -> str:
        if self._free:
            return self._free.pop()
        name = self._name()
        self._server.create_database(name, template=self._template)
        return name

    def give_back(self, name: str) -> None:
        if self._wipes and (fresh := self._left_alone(name)) and self._is_wiped(fresh):
            self._free.append(fresh)

    def _name(self) -> str:
        return f"swf_{next(self._serial)}"

    def _left_alone(self, name: str) -> str | None:
        """Its new name, under which nobody knows it."""
        fresh = self._name()
        for _ in range(_TRIES):
            try:
                self._server.rename_database(name, fresh)
            except psycopg.errors.ObjectInUse:
                continue  # somebody came in between
            except psycopg.errors.InvalidCatalogName:
                return None  # the test dropped it
            return fresh
        self._server.drop_database(name)
        return None

    def _is_wiped(self, name: str) -> bool:
        with psycopg.connect(self._server.url(name), autocommit=True) as connection:
            if same := self._looks(connection) == self._look:
                self._wipe(connection)
        if not same:
            self._server.drop_database(name)
        return same

    def _wipe(self, connection: psycopg.Connection[Any]) -> None:
        full = [name for (name,) in connection.execute(_TABLES) if name not in self._written]
        if full:
            connection.execute(sql.SQL("TRUNCATE {} RESTART IDENTITY CASCADE").format(sql.SQL(", ".join(full))))
        connection.execute(f"DELETE FROM pg_statistic WHERE starelid >= {_USERS}")
        connection.execute("SELECT pg_stat_reset()")

    def _looks(self, connection: psycopg.Connection[Any]) -> tuple[object, ...] | None:
        """As good as the same text if all is the same; None where tables are missing."""
        rows = " UNION ALL ".join(f"SELECT format('{name} %s', t) FROM {name} t" for name in self._written)
        query = f"SELECT md5(string_agg(line, ',' ORDER BY line)) FROM ({_CATALOG} UNION ALL {rows}) AS look(line)"
        try:
            return connection.execute(query).fetchone()
        except psycopg.errors.UndefinedTable:
            return None
