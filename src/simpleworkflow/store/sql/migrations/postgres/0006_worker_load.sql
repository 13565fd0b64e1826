-- How full a worker was when it was last seen: its slots, those taken, and the types whose own cap leaves no or little
-- room. For people who ask why a due run does not start; no rule depends on it.

-- migrate:up

ALTER TABLE workflow.workflow_worker ADD COLUMN load json;

-- migrate:down

ALTER TABLE workflow.workflow_worker DROP COLUMN load;
