-- Whose turn it is to prune, per policy, and how far the pass has come: one worker at a time walks the runs, another goes
-- on where it left off, and `doctor` can tell that pruning is on. Losing a row costs a pass from the beginning, no more.

-- migrate:up

CREATE TABLE workflow.workflow_pruning (
  policy       text COLLATE "C" PRIMARY KEY,
  holder       text,
  held_until   timestamptz NOT NULL,
  started_at   timestamptz NOT NULL,
  finished_at  timestamptz,
  place        uuid,
  removed      bigint NOT NULL DEFAULT 0,
  last_removed bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- migrate:down

DROP TABLE workflow.workflow_pruning;
