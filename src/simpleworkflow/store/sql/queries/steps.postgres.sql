-- PostgreSQL's own texts.

-- name: load_steps
-- differs: no rowid; every record has a sequence number of its own; the fence (OFFSET 0) admits one plan, run by run
-- batch: b(run_id uuid)
SELECT s.* FROM :b CROSS JOIN LATERAL (
  SELECT s.run_id, s.step_id, s.kind, s.status, s.attempt, s.due_at, s.started_at, s.completed_at,
         s.input AS input_json, s.output AS output_json, s.error AS error_json
  FROM workflow.workflow_step s WHERE s.run_id = b.run_id ORDER BY s.seq OFFSET 0) AS s

-- name: load_signals
-- differs: no rowid; every signal has a sequence number of its own; fenced as load_steps is
-- batch: b(run_id uuid)
SELECT s.* FROM :b CROSS JOIN LATERAL (
  SELECT s.id, s.run_id, s.name, s.created_at, s.consumed_at, s.payload AS payload_json
  FROM workflow.workflow_signal s WHERE s.run_id = b.run_id AND s.consumed_at IS NULL ORDER BY s.seq OFFSET 0) AS s

-- name: signals_of_run
-- differs: no rowid
-- param: run_id uuid
SELECT s.id, s.run_id, s.name, s.created_at, s.consumed_at, s.payload AS payload_json
FROM workflow.workflow_signal s WHERE s.run_id = :run_id ORDER BY s.seq

-- fragment: insert_steps
INSERT INTO workflow.workflow_step AS s
  (run_id, lease_epoch, step_id, kind, status, attempt, started_at, completed_at, due_at, input, output, error)
SELECT b.run_id, b.epoch, b.step_id, b.kind, b.status, b.attempt, :now - us(b.elapsed),
       CASE WHEN b.status IN ('succeeded', 'failed') THEN :now END, :now + us(b.due_in), b.input, b.output, b.error
FROM
-- fragment: or_complete
ON CONFLICT (run_id, step_id) DO UPDATE
SET status = excluded.status, attempt = excluded.attempt, lease_epoch = excluded.lease_epoch,
    completed_at = excluded.completed_at,
    due_at = CASE WHEN excluded.status = 'retrying' THEN excluded.due_at ELSE coalesce(s.due_at, excluded.due_at) END,
    done_seq = CASE WHEN excluded.completed_at IS NOT NULL THEN nextval('workflow.workflow_event_id_seq') END,
    output = excluded.output, error = excluded.error
WHERE s.completed_at IS NULL OR s.kind = 'publish'

-- name: record_fenced
-- differs: only where rows can be locked inside a statement: the fence and the records in one round trip, one commit. The
-- lock reads a row anew when it had to wait for it, so a lease that was taken over meanwhile does not come through.
-- batch: s(run_id uuid, epoch bigint, step_id text, kind text, status text, attempt integer, elapsed bigint, due_in bigint, input json, output json, error json)
-- param: worker text
WITH b AS MATERIALIZED (
  SELECT s.* FROM :s CROSS JOIN LATERAL (
    SELECT FROM workflow.workflow_run r
    WHERE r.id = s.run_id AND {valid_epoch} = s.epoch FOR NO KEY UPDATE) AS held),
written AS (
  {insert_steps} b
  {or_complete})
SELECT b.run_id, b.epoch FROM b

-- name: record_results
-- differs: record_fenced for the usual record, a step that came to its end at the first attempt: as little as possible in its batch, and no look whether it is there already, which it never is but for a try whose answer was lost; the answer is how many leases held
-- Each column is one text: asyncpg looks at every element of an array several times before it writes it, which took longer
-- than making the record. What holds the unit separator is sent by record_fenced.
-- param: worker text, run_ids text, epochs text, step_ids text, elapsed text, inputs text, outputs text
WITH written AS (
  INSERT INTO workflow.workflow_step (run_id, lease_epoch, step_id, kind, status, started_at, completed_at, input, output)
  SELECT s.run_id, s.epoch, s.step_id, 'step', 'succeeded', :now - us(s.elapsed), :now,
         CAST(s.input AS json), CAST(s.output AS json)
  FROM unnest(CAST(:run_ids AS uuid[]), CAST(:epochs AS bigint[]), string_to_array(:step_ids, E'\x1f'),
              CAST(:elapsed AS bigint[]), string_to_array(:inputs, E'\x1f', ''), string_to_array(:outputs, E'\x1f', ''))
         AS s(run_id, epoch, step_id, elapsed, input, output)
  CROSS JOIN LATERAL (
    SELECT FROM workflow.workflow_run r
    WHERE r.id = s.run_id AND {valid_epoch} = s.epoch FOR NO KEY UPDATE) AS held
  RETURNING 1)
SELECT count(*) AS held FROM written

-- name: next_in_sequence
-- differs: the sequence of the events numbers steps and signals too

-- name: record_steps
-- differs: sequence numbers come from the event sequence itself
-- batch: b(run_id uuid, epoch bigint, step_id text, kind text, status text, attempt integer, elapsed bigint, due_in bigint, input json, output json, error json)
{insert_steps} :b
{or_complete}
