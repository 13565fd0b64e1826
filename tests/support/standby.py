"""A second PostgreSQL that follows the first one, can be cut off from it, and takes over when it is told to."""

from __future__ import annotations

import shutil
from typing import Any

import psycopg

from .postgres import LaunchedServer, _give_away, find_system, find_wheel
from .waiting import until

SETTINGS = {"wal_level": "replica", "max_wal_senders": "4", "hot_standby": "on", "synchronous_commit": "local"}


def primary() -> LaunchedServer:
    return LaunchedServer(find_system() or find_wheel(), settings=SETTINGS)


class Standby(LaunchedServer):
    """Made from a copy of the other's directory, for which that one is stopped for a moment."""

    def __init__(self, source: LaunchedServer) -> None:
        self._source = source
        super().__init__(source.bin_dir, settings=SETTINGS)

    def _initdb(self) -> None:
        self._source.stop()
        shutil.copytree(self._source.data_dir, self.data_dir)
        self._source.start()
        (self.data_dir / "standby.signal").touch()
        with (self.data_dir / "postgresql.auto.conf").open("a") as settings:
            settings.write(f"primary_conninfo = 'host=127.0.0.1 port={self._source.port} user=postgres'\n")
        _give_away(self.data_dir, self._account)

    def await_caught_up(self) -> None:
        """What is committed there so far is here, too."""
        with psycopg.connect(self._source.url()) as there, psycopg.connect(self.url()) as here:
            (place,) = self._one(there, "SELECT pg_current_wal_lsn()::text")
            text = f"SELECT pg_last_wal_replay_lsn() >= '{place}'::pg_lsn"
            until(lambda: self._one(here, text)[0], "the standby has caught up")

    def cut_off(self) -> None:
        """It hears nothing more of what is committed there."""
        with psycopg.connect(self.url(), autocommit=True) as here:
            here.execute("ALTER SYSTEM SET primary_conninfo = ''")
            here.execute("SELECT pg_reload_conf()")
            until(lambda: not self._one(here, "SELECT count(*) FROM pg_stat_wal_receiver")[0], "the link is cut")

    def take_over(self) -> None:
        """The other one has died."""
        self._source.stop("immediate")
        with psycopg.connect(self.url(), autocommit=True) as here:
            here.execute("SELECT pg_promote(true, 30)")

    @staticmethod
    def _one(connection: psycopg.Connection[Any], text: str) -> Any:
        row = connection.execute(text).fetchone()
        connection.rollback()
        return row
