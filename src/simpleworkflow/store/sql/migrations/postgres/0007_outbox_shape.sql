-- Anybody may write events into the outbox; one that no relay can read must not get in. The types do most of it here.

-- migrate:up

ALTER TABLE workflow.outbox_event
  ADD CONSTRAINT outbox_event_shape CHECK (sequence >= 1 AND isfinite(created_at)) NOT VALID;

-- migrate:down

ALTER TABLE workflow.outbox_event DROP CONSTRAINT outbox_event_shape;
