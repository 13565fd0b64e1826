-- How full a worker was when it was last seen. Same column and meaning as on PostgreSQL.

-- migrate:up

ALTER TABLE workflow_worker ADD COLUMN load TEXT;

-- migrate:down

ALTER TABLE workflow_worker DROP COLUMN load;
