-- Whose turn it is to prune, per policy, and how far the pass has come. Same table and rules as on PostgreSQL.

-- migrate:up

CREATE TABLE workflow_pruning (
  policy       TEXT PRIMARY KEY NOT NULL,
  holder       TEXT,
  held_until   INTEGER NOT NULL,
  started_at   INTEGER NOT NULL,
  finished_at  INTEGER,
  place        TEXT,
  removed      INTEGER NOT NULL DEFAULT 0,
  last_removed INTEGER NOT NULL DEFAULT 0
);

-- migrate:down

DROP TABLE workflow_pruning;
