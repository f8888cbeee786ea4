-- A hold of the whole cluster: no scheduler takes shards and no worker registers until an operator ends it. A restore of a
-- backup begins one, because the database then does not know what was done since.
CREATE TABLE holds (
    hold_id    int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    held_at    timestamptz NOT NULL DEFAULT db_now(),
    backup_at  timestamptz NOT NULL,                -- when the restored backup was taken: the gap begins there
    ended_at   timestamptz,
    ended_by   text,
    gap        text CHECK (gap IN ('skip', 'run')), -- what the operator decided
    CHECK ((ended_at IS NULL) = (gap IS NULL))
);
CREATE UNIQUE INDEX holds_open ON holds ((true)) WHERE ended_at IS NULL;

-- The last statement of a restore, in its transaction. The epochs fence off processes of before that still live.
CREATE FUNCTION hold_firing(backup_at timestamptz) RETURNS void
LANGUAGE sql AS $$
    UPDATE shards SET owner = NULL, lease_expires_at = NULL, epoch = epoch + 1000000;
    DELETE FROM schedulers;
    UPDATE sessions SET state = 'lost', ended_at = db_now() WHERE ended_at IS NULL;
    UPDATE holds SET ended_at = db_now(), ended_by = 'a later restore', gap = 'skip' WHERE ended_at IS NULL;
    INSERT INTO holds (backup_at) VALUES (backup_at);
$$;
