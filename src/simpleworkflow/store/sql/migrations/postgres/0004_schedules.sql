-- Schedules: which workflow is started at which slots.

-- migrate:up

-- `next_at` is the whole clockwork: any worker that sees it pass starts the slot's run and moves it on, in one
-- transaction, under this row's lock. NULL means that nobody has computed it yet, so that a plain INSERT of a name, a
-- type and a cron expression (or an interval) is a complete schedule.
CREATE TABLE workflow.workflow_schedule (
  name            text COLLATE "C" PRIMARY KEY,
  type            text COLLATE "C" NOT NULL,
  next_at         timestamptz,
  paused_at       timestamptz,
  every_us        bigint,
  window_us       bigint,
  fired           bigint NOT NULL DEFAULT 0,
  skipped         bigint NOT NULL DEFAULT 0,
  last_slot_at    timestamptz,
  last_fired_at   timestamptz,
  last_skipped_at timestamptz,
  last_run_id     uuid,
  extra_run_id    uuid,
  created_at      timestamptz NOT NULL DEFAULT now(),
  updated_at      timestamptz NOT NULL DEFAULT now(),
  cron            text,
  tz              text NOT NULL DEFAULT 'UTC',
  overlap         text NOT NULL DEFAULT 'allow',
  catch_up        text NOT NULL DEFAULT 'one',
  origin          text NOT NULL DEFAULT 'call',
  pause_reason    text,
  trouble         text,
  payload         json NOT NULL DEFAULT 'null',
  CONSTRAINT workflow_schedule_name CHECK (name ~ '^[A-Za-z0-9_.-]{1,200}$'),
  CONSTRAINT workflow_schedule_type CHECK (type ~ '^[A-Za-z0-9_.-]{1,200}$'),
  CONSTRAINT workflow_schedule_rhythm CHECK ((cron IS NULL) <> (every_us IS NULL)),
  CONSTRAINT workflow_schedule_every CHECK (every_us IS NULL OR every_us >= 1000000),
  CONSTRAINT workflow_schedule_window CHECK (window_us IS NULL OR window_us >= 0),
  CONSTRAINT workflow_schedule_overlap CHECK (overlap IN ('allow', 'skip', 'cancel')),
  CONSTRAINT workflow_schedule_catch_up CHECK (catch_up IN ('none', 'one', 'all'))
);
CREATE INDEX workflow_schedule_due ON workflow.workflow_schedule (next_at NULLS FIRST) WHERE paused_at IS NULL;

-- migrate:down

DROP TABLE workflow.workflow_schedule;
