-- The memo of a run: steps and waits, signals, pauses. Everything a worker writes here is written while it holds the
-- row lock of its run and has proved its lease (lock_leases): an INSERT joined to the run would not be a fence.

-- name: load_steps
-- Everything recorded of these runs, in the order in which it was recorded, with the failures that a retry has
-- superseded. Records of one statement share a sequence number here; the row id tells them apart.
-- batch: b(run_id uuid)
SELECT s.run_id, s.step_id, s.kind, s.status, s.attempt, s.due_at, s.started_at, s.completed_at,
       s.input AS input_json, s.output AS output_json, s.error AS error_json
FROM :b JOIN workflow.workflow_step s ON s.run_id = b.run_id
ORDER BY s.run_id, s.seq, s.rowid

-- name: load_signals
-- What these runs have been told and have not consumed, oldest first.
-- batch: b(run_id uuid)
SELECT s.id, s.run_id, s.name, s.created_at, s.consumed_at, s.payload AS payload_json
FROM :b JOIN workflow.workflow_signal s ON s.run_id = b.run_id
WHERE s.consumed_at IS NULL
ORDER BY s.run_id, s.seq, s.rowid

-- name: signals_of_run
-- param: run_id uuid
SELECT s.id, s.run_id, s.name, s.created_at, s.consumed_at, s.payload AS payload_json
FROM workflow.workflow_signal s WHERE s.run_id = :run_id ORDER BY s.seq, s.rowid

-- name: next_in_sequence
-- The place of the next record or signal among the events. PostgreSQL has sequences for that.
UPDATE workflow.workflow_sequence
SET n = CASE WHEN last = (SELECT coalesce(max(e.id), 1) FROM workflow.workflow_event e) THEN n + 1 ELSE 1 END,
    last = (SELECT coalesce(max(e.id), 1) FROM workflow.workflow_event e)

-- name: record_steps
-- Writes or completes records; the caller holds the locks. What is completed stays so: a wait that is put on record
-- late must not undo it. Published values alone are written again and again.
-- batch: b(run_id uuid, epoch bigint, step_id text, kind text, status text, attempt integer, elapsed bigint, due_in bigint, input json, output json, error json)
INSERT INTO workflow.workflow_step
  (run_id, seq, lease_epoch, step_id, kind, status, attempt, started_at, completed_at, due_at, input, output, error)
SELECT b.run_id, (SELECT q.last * 1048576 + q.n FROM workflow.workflow_sequence q), b.epoch, b.step_id, b.kind, b.status,
       b.attempt, :now - us(b.elapsed), CASE WHEN b.status IN ('succeeded', 'failed') THEN :now END,
       :now + us(b.due_in), b.input, b.output, b.error
FROM :b
WHERE true
ON CONFLICT (run_id, step_id) DO UPDATE
SET status = excluded.status, attempt = excluded.attempt, lease_epoch = excluded.lease_epoch,
    completed_at = excluded.completed_at,
    due_at = CASE WHEN excluded.status = 'retrying' THEN excluded.due_at
                  ELSE coalesce(workflow_step.due_at, excluded.due_at) END,
    done_seq = CASE WHEN excluded.completed_at IS NOT NULL THEN excluded.seq END,
    output = excluded.output, error = excluded.error
WHERE workflow_step.completed_at IS NULL OR workflow_step.kind = 'publish'

-- name: clear_steps
-- A retry of the run does these again, since their failure ended the execution before. The old record makes room and
-- stays for the history.
-- batch: b(run_id uuid, step_id text)
UPDATE workflow.workflow_step AS s
SET status = 'superseded', step_id = '@superseded ' || s.lease_epoch || ' ' || s.step_id
FROM :b WHERE s.run_id = b.run_id AND s.step_id = b.step_id AND s.status = 'failed'

-- name: insert_outbox
-- Numbered per run under the run's lock. A step that is on record already has emitted: the first try of a flush whose
-- answer was lost may have committed.
-- batch: e(run_id uuid, step_id text, place integer, event_type text, payload json)
INSERT INTO workflow.outbox_event (aggregate_id, sequence, event_type, payload, created_at)
SELECT e.run_id, e.place + coalesce(
         (SELECT max(o.sequence) FROM workflow.outbox_event o WHERE o.aggregate_id = e.run_id), 0),
       e.event_type, e.payload, :now
FROM :e
WHERE NOT EXISTS (SELECT 1 FROM workflow.workflow_step s WHERE s.run_id = e.run_id AND s.step_id = e.step_id)

-- name: published_values
-- The newest of each branch; the caller takes the newest of all.
-- param: run_id uuid
SELECT s.step_id, s.output AS output_json, s.completed_at
FROM workflow.workflow_step s WHERE s.run_id = :run_id AND s.kind = 'publish'
ORDER BY s.completed_at, coalesce(s.done_seq, s.seq)

-- name: history_of_run
-- param: run_id uuid, after bigint, limit integer
SELECT h.idx, h.event_type, h."timestamp" AS happened_at, CAST(h.details AS text) AS details_json
FROM workflow.workflow_history h
WHERE h.workflow_id = :run_id AND h.idx > :after ORDER BY h.idx LIMIT :limit

-- name: consume_signals
-- batch: b(signal_id uuid, step_id text)
UPDATE workflow.workflow_signal AS s
SET consumed_at = :now, consumed_by = b.step_id
FROM :b WHERE s.id = b.signal_id AND s.consumed_at IS NULL

-- name: pause_runs
-- Gives up the slot. A wake that came since the history was read refuses the pause: look again.
-- batch: b(run_id uuid, epoch bigint, wakes bigint, due_in bigint)
-- param: worker text
UPDATE workflow.workflow_run AS r
SET status = 'paused', version = r.version + 1, crashes = 0, run_at = :now + us(b.due_in), lease_until = NULL,
    leased_by = NULL, updated_at = :now
FROM :b
WHERE r.id = b.run_id AND {valid_epoch} = b.epoch AND r.wakes = b.wakes
RETURNING id AS run_id

-- name: log_paused
-- batch: b(run_id uuid, epoch bigint, elapsed bigint, data json)
INSERT INTO workflow.workflow_event (workflow_id, event_type, lease_epoch, data, created_at)
SELECT b.run_id, 'started', b.epoch, NULL, :now - us(b.elapsed) FROM :b
UNION ALL
SELECT b.run_id, 'paused', b.epoch, b.data, :now FROM :b

-- name: progress_runs
-- A new durable write proves that the run is no poison.
-- batch: b(run_id uuid)
UPDATE workflow.workflow_run AS r
SET crashes = 0, version = r.version + 1
FROM :b WHERE r.id = b.run_id AND r.crashes > 0

-- name: wake_for_signal
-- The run first, the signal second: none slips past a finish or a pause.
-- param: run_id uuid
UPDATE workflow.workflow_run
SET wakes = wakes + 1, version = version + 1, updated_at = :now,
    run_at = CASE WHEN status = 'paused' AND (run_at IS NULL OR run_at > :now) THEN :now ELSE run_at END
WHERE id = :run_id AND finished_at IS NULL
RETURNING id, status

-- name: insert_signal
-- A seq of -1 tells the trigger that its run was woken already, and that it has only to number it.
-- param: id uuid, run_id uuid, name text, payload json
INSERT INTO workflow.workflow_signal (id, run_id, seq, name, payload, created_at)
VALUES (:id, :run_id, -1, :name, :payload, :now)
ON CONFLICT (id) DO NOTHING
RETURNING id

-- name: get_signal
-- param: id uuid
SELECT s.run_id, s.name, CAST(s.payload AS text) AS payload_json FROM workflow.workflow_signal s WHERE s.id = :id
