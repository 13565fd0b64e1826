"""What simple-workflow's clients send, word for word: statements of github.com/tendant/simple-workflow (MIT licence,
copyright 2026 Lei Wang) at f5d3e2a (January 2026) and at 68e6563 (March 2026). Its packages are on no index that the
tests can reach, so the statements are kept here, each with the file that it was taken from, indented anew.

`Stranger` sends them as a producer and a worker would, in the same order and transactions, and looks at as much of
each answer as they do.
"""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

JANUARY, MARCH = "f5d3e2a", "68e6563"

# intent.go at f5d3e2a; repository.go at 68e6563
GO_CREATE = """
    INSERT INTO workflow_run (
        id, type, payload, priority, run_at,
        idempotency_key, max_attempts
    ) VALUES ($1, $2, $3, $4, $5, $6, $7)
    ON CONFLICT (idempotency_key) DO NOTHING
    RETURNING id
"""
# python/simpleworkflow/client.py at 68e6563; the package of January has no producer
PYTHON_CREATE = """
    INSERT INTO workflow_run (
        id, type, payload, priority, run_at,
        idempotency_key, max_attempts
    ) VALUES (%s, %s, %s, %s, %s, %s, %s)
    ON CONFLICT (idempotency_key) DO NOTHING
    RETURNING id
"""
# intent.go at f5d3e2a; repository.go, python/simpleworkflow/client.py at 68e6563
CANCEL = """
    UPDATE workflow_run
    SET status = 'cancelled', updated_at = NOW()
    WHERE id = $1 AND status IN ('pending', 'leased')
"""
# poller.go, python/simpleworkflow/poller.py at f5d3e2a: read, then lease, in one transaction. Here and in the claims
# below their code puts the condition on types in.
READ_FIRST = """
    SELECT id, type, payload, attempt, max_attempts
    FROM workflow_run
    WHERE status = 'pending'
      AND run_at <= NOW()
      AND deleted_at IS NULL
      AND (type LIKE 'content.%')
    ORDER BY priority ASC, created_at ASC
    FOR UPDATE SKIP LOCKED
    LIMIT 1
"""
# poller.go at f5d3e2a
LEASE_READ = """
    UPDATE workflow_run
    SET status = 'leased',
        leased_by = $1,
        lease_until = NOW() + $2::interval,
        updated_at = NOW()
    WHERE id = $3
"""
# python/simpleworkflow/poller.py at f5d3e2a
PYTHON_LEASE_READ = """
    UPDATE workflow_run
    SET status = 'leased',
        leased_by = %s,
        lease_until = NOW() + INTERVAL '%s seconds',
        updated_at = NOW()
    WHERE id = %s
"""
# dialect_postgres.go at 68e6563
GO_CLAIM = """
    UPDATE workflow_run
    SET status = 'leased',
        leased_by = $1,
        lease_until = NOW() + $2::interval,
        updated_at = NOW()
    WHERE id = (
        SELECT id FROM workflow_run
        WHERE ((status = 'pending' AND run_at <= NOW())
            OR (status = 'leased' AND lease_until < NOW()))
          AND deleted_at IS NULL
          AND (type LIKE $3)
        ORDER BY priority ASC, created_at ASC
        FOR UPDATE SKIP LOCKED
        LIMIT 1
    )
    RETURNING id, type, payload, attempt, max_attempts
"""
# python/simpleworkflow/poller.py at 68e6563
PYTHON_CLAIM = """
    UPDATE workflow_run
    SET status = 'leased',
        leased_by = %s,
        lease_until = NOW() + (%s)::interval,
        updated_at = NOW()
    WHERE id = (
        SELECT id FROM workflow_run
        WHERE status = 'pending'
          AND run_at <= NOW()
          AND deleted_at IS NULL
          AND (type LIKE %s)
        ORDER BY priority ASC, created_at ASC
        FOR UPDATE SKIP LOCKED
        LIMIT 1
    )
    RETURNING id, type, payload, attempt, max_attempts
"""
# poller.go, python/simpleworkflow/poller.py at f5d3e2a; repository.go, the same poller.py at 68e6563
SUCCEEDED = """
    UPDATE workflow_run
    SET status = 'succeeded',
        result = $1,
        updated_at = NOW()
    WHERE id = $2
"""
FAILED = """
    UPDATE workflow_run
    SET status = $1,
        attempt = $2,
        run_at = $3,
        last_error = $4,
        updated_at = NOW()
    WHERE id = $5
"""
# poller.go at f5d3e2a; repository.go at 68e6563
HEARTBEAT = """
    UPDATE workflow_run
    SET lease_until = NOW() + $1::interval,
        updated_at = NOW()
    WHERE id = $2 AND status = 'leased'
"""
# python/simpleworkflow/poller.py at f5d3e2a and at 68e6563
PYTHON_HEARTBEAT = {
    JANUARY: """
    UPDATE workflow_run
    SET lease_until = NOW() + INTERVAL '%s seconds',
        updated_at = NOW()
    WHERE id = %s AND status = 'leased'
""",
    MARCH: """
    UPDATE workflow_run
    SET lease_until = NOW() + (%s || ' seconds')::interval,
        updated_at = NOW()
    WHERE id = %s AND status = 'leased'
""",
}
# poller.go, python/simpleworkflow/poller.py at f5d3e2a; repository.go, the same poller.py at 68e6563
IS_CANCELLED = "SELECT status FROM workflow_run WHERE id = $1"
LOG_EVENT = """
    INSERT INTO workflow_event (workflow_id, event_type, data)
    VALUES ($1, $2, $3)
"""
# repository.go at 68e6563
GET = """
    SELECT id, type, payload, status, priority, run_at,
           idempotency_key, attempt, max_attempts,
           leased_by, lease_until, last_error, result,
           created_at, updated_at
    FROM workflow_run
    WHERE id = $1 AND deleted_at IS NULL
"""


@dataclass
class Taken:
    id: Any
    payload: Any
    attempt: int
    max_attempts: int


class Stranger:
    """A client of simple-workflow in one of its languages, at one of its revisions."""

    def __init__(self, url: str, language: str, revision: str, name: str = "stranger") -> None:
        self.name = name
        self._reads_first = revision == JANUARY
        self._claim = GO_CLAIM if language == "go" else PYTHON_CLAIM
        self._create = GO_CREATE if language == "go" else PYTHON_CREATE
        self._is_python, self._revision = language == "python", revision
        self._connection = psycopg.connect(url, options="-c search_path=workflow")

    def close(self) -> None:
        self._connection.close()

    def _send(self, text: str, *values: Any) -> Any:
        marks = re.sub(r"\$\d+", "%s", text.replace("'content.%'", "'content.%%'"))
        return self._connection.execute(marks, values or None)

    def _write(self, text: str, *values: Any) -> Any:
        """As psycopg2 does it: the values are written into the statement, also between its quotes."""
        return psycopg.ClientCursor(self._connection).execute(text, values)

    def _tell(self, run_id: Any, event: str, data: dict[str, Any] | None = None) -> None:
        """On best effort, as they say: an error is dropped."""
        try:
            self._send(LOG_EVENT, run_id, event, None if data is None else json.dumps(data))
            self._connection.commit()
        except psycopg.Error:
            self._connection.rollback()

    def create(self, type: str, payload: Any, key: str | None = None, max_attempts: int = 3) -> str:
        """The new run's id; "" when another run has the key."""
        values = (str(uuid.uuid4()), type, json.dumps(payload), 100, datetime.now(UTC), key, max_attempts)
        row = self._send(self._create, *values).fetchone()
        self._connection.commit()
        if row is None:
            return ""
        self._tell(row[0], "created")
        return str(row[0])

    def cancel(self, run_id: Any) -> None:
        found = self._send(CANCEL, run_id).rowcount
        self._connection.commit()
        if found == 0:
            raise LookupError(f"Workflow run {run_id} not found or already completed")
        self._tell(run_id, "cancelled")

    def get(self, run_id: Any) -> tuple[Any, ...] | None:
        row: tuple[Any, ...] | None = self._send(GET, run_id).fetchone()
        self._connection.commit()
        return row

    def claim(self, seconds: float = 30) -> Taken | None:
        """Errors are logged there and end the round; here the test sees them."""
        try:
            lease = f"{seconds} seconds"
            if self._reads_first:
                row = self._send(READ_FIRST).fetchone()
                if row is not None:
                    # The number of rows is not looked at.
                    if self._is_python:
                        self._write(PYTHON_LEASE_READ, self.name, seconds, row[0])
                    else:
                        self._send(LEASE_READ, self.name, lease, row[0])
            else:
                row = self._send(self._claim, self.name, lease, "content.%").fetchone()
            self._connection.commit()
        except psycopg.Error:
            self._connection.rollback()
            raise
        if row is None:
            return None
        run_id, _, payload, attempt, max_attempts = row
        self._tell(run_id, "leased", {"worker_id": self.name, "attempt": attempt})
        self._tell(run_id, "started", {"worker_id": self.name})
        return Taken(run_id, payload, attempt, max_attempts)

    def heartbeat(self, run: Taken, seconds: float) -> int:
        sent = (
            self._write(PYTHON_HEARTBEAT[self._revision], seconds, run.id)
            if self._is_python
            else self._send(HEARTBEAT, f"{seconds} seconds", run.id)
        )
        found: int = sent.rowcount
        self._connection.commit()
        return found

    def is_cancelled(self, run: Taken) -> bool:
        (status,) = self._send(IS_CANCELLED, run.id).fetchone()
        self._connection.commit()
        return bool(status == "cancelled")

    def succeed(self, run: Taken, result: Any) -> bool:
        """Whether the database took it; they log it when it did not, and go on."""
        return self._end(run, "succeeded", None, SUCCEEDED, json.dumps(result), run.id)

    def fail(self, run: Taken, error: str) -> bool:
        attempt = run.attempt + 1
        status = "pending" if attempt < run.max_attempts else "failed"
        run_at = datetime.now(UTC) + timedelta(minutes=attempt**2)
        event = "retried" if status == "pending" else "failed"
        data = {"attempt": attempt, "error": error}
        return self._end(run, event, data, FAILED, status, attempt, run_at, error, run.id)

    def _end(self, run: Taken, event: str, data: dict[str, Any] | None, text: str, *values: Any) -> bool:
        try:
            self._send(text, *values)
            self._connection.commit()
            return True
        except psycopg.Error:
            self._connection.rollback()
            return False
        finally:
            self._tell(run.id, event, data)
