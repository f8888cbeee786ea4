-- Triggers of kind `topic`: started by messages. Their watch (trigger_watches) has the lag and what cannot be read.
ALTER TABLE triggers DROP CONSTRAINT triggers_kind_check;
ALTER TABLE triggers ADD CONSTRAINT triggers_kind_check CHECK (kind IN ('webhook', 'completion', 'files', 'topic'));
ALTER TABLE trigger_watches ADD COLUMN lag bigint;

-- How far a trigger has read each partition of its topic. Written with the executions that the messages start, so that no
-- message starts two. `topic_key` identifies the topic: a topic that was created again begins at offset 0.
CREATE TABLE trigger_positions (
    trigger_id    uuid NOT NULL REFERENCES triggers ON DELETE CASCADE,
    topic_key     text COLLATE "C" NOT NULL,
    part          int NOT NULL,
    tenant_id     int NOT NULL,
    next_offset   bigint NOT NULL,
    moved_at      timestamptz NOT NULL DEFAULT db_now(),
    PRIMARY KEY (trigger_id, topic_key, part)
) WITH (fillfactor = 70);
