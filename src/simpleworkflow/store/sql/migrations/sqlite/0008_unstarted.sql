-- A claim is not a start yet: a run that comes back from a worker before its code began must still start in time. So
-- what has not started is told by started_at, which a return takes back, and not by lease_epoch, which only grows.

-- migrate:up

CREATE INDEX workflow_run_unstarted ON workflow_run (start_by)
  WHERE start_by IS NOT NULL AND started_at IS NULL AND finished_at IS NULL;
DROP INDEX workflow_run_start_by;

-- migrate:down

CREATE INDEX workflow_run_start_by ON workflow_run (start_by)
  WHERE start_by IS NOT NULL AND lease_epoch = 0 AND finished_at IS NULL;
DROP INDEX workflow_run_unstarted;
