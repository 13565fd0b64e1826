-- Anybody may write events into the outbox; one that no relay can read must not get in: an instant in words would stop
-- the deliveries of everybody, and an id in capitals is in nobody's lane. A table cannot be given a CHECK later.

-- migrate:up

CREATE TRIGGER outbox_event_shape BEFORE INSERT ON outbox_event
WHEN NOT (
  typeof(NEW.sequence) = 'integer' AND NEW.sequence >= 1 AND typeof(NEW.event_type) = 'text'
  AND typeof(NEW.created_at) = 'integer' AND typeof(NEW.payload) = 'text' AND json_valid(NEW.payload)
  AND length(NEW.aggregate_id) = 36 AND NEW.aggregate_id NOT GLOB '*[^0-9a-f-]*'
  AND length(replace(NEW.aggregate_id, '-', '')) = 32
  AND substr(NEW.aggregate_id, 9, 1) || substr(NEW.aggregate_id, 14, 1) || substr(NEW.aggregate_id, 19, 1)
      || substr(NEW.aggregate_id, 24, 1) = '----')
BEGIN
  SELECT RAISE(ABORT, 'outbox_event_shape: aggregate_id is the id of a run as it stands in workflow_run, sequence counts from 1, created_at is whole microseconds since 1970, payload is JSON text');
END;

-- migrate:down

DROP TRIGGER outbox_event_shape;
