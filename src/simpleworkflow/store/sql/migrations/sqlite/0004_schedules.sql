-- Schedules: which workflow is started at which slots. See PostgreSQL's text.

-- migrate:up

CREATE TABLE workflow_schedule (
  name            TEXT PRIMARY KEY NOT NULL,
  type            TEXT NOT NULL,
  next_at         INTEGER,
  paused_at       INTEGER,
  every_us        INTEGER,
  window_us       INTEGER,
  fired           INTEGER NOT NULL DEFAULT 0,
  skipped         INTEGER NOT NULL DEFAULT 0,
  last_slot_at    INTEGER,
  last_fired_at   INTEGER,
  last_skipped_at INTEGER,
  last_run_id     TEXT,
  extra_run_id    TEXT,
  created_at      INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000),
  updated_at      INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000),
  cron            TEXT,
  tz              TEXT NOT NULL DEFAULT 'UTC',
  overlap         TEXT NOT NULL DEFAULT 'allow',
  catch_up        TEXT NOT NULL DEFAULT 'one',
  origin          TEXT NOT NULL DEFAULT 'call',
  pause_reason    TEXT,
  trouble         TEXT,
  payload         TEXT NOT NULL DEFAULT 'null',
  CONSTRAINT workflow_schedule_name CHECK (length(name) BETWEEN 1 AND 200 AND name NOT GLOB '*[^A-Za-z0-9_.-]*'),
  CONSTRAINT workflow_schedule_type CHECK (length(type) BETWEEN 1 AND 200 AND type NOT GLOB '*[^A-Za-z0-9_.-]*'),
  CONSTRAINT workflow_schedule_rhythm CHECK ((cron IS NULL) <> (every_us IS NULL)),
  CONSTRAINT workflow_schedule_every CHECK (every_us IS NULL OR every_us >= 1000000),
  CONSTRAINT workflow_schedule_window CHECK (window_us IS NULL OR window_us >= 0),
  CONSTRAINT workflow_schedule_overlap CHECK (overlap IN ('allow', 'skip', 'cancel')),
  CONSTRAINT workflow_schedule_catch_up CHECK (catch_up IN ('none', 'one', 'all')),
  CONSTRAINT workflow_schedule_instants CHECK (
    typeof(next_at) IN ('integer', 'null') AND typeof(paused_at) IN ('integer', 'null')
    AND typeof(every_us) IN ('integer', 'null') AND typeof(window_us) IN ('integer', 'null')),
  CONSTRAINT workflow_schedule_json CHECK (json_valid(payload))
);
CREATE INDEX workflow_schedule_due ON workflow_schedule (next_at) WHERE paused_at IS NULL;

-- migrate:down

DROP TABLE workflow_schedule;
