-- Of each attempt, when it was due and queued: the execution's own row has only the last of each.
ALTER TABLE attempts ADD COLUMN due_at timestamptz, ADD COLUMN queued_at timestamptz;

-- What has happened to an execution is added to, and never changed.
CREATE TRIGGER attempts_stay BEFORE UPDATE ON attempts EXECUTE FUNCTION refuse_change();
CREATE TRIGGER history_stays BEFORE UPDATE ON history FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- How many schedules a token may make in an hour, if not as many as the server allows each.
ALTER TABLE tokens ADD COLUMN schedule_quota int CONSTRAINT tokens_schedule_quota CHECK (schedule_quota >= 0);

-- How many schedules each token was granted in the hour that began at its first. No row: none yet.
CREATE TABLE token_grants (
    token_id    uuid PRIMARY KEY REFERENCES tokens ON DELETE CASCADE,
    tenant_id   int NOT NULL REFERENCES tenants,
    began_at    timestamptz NOT NULL,
    granted     int NOT NULL CHECK (granted >= 0)
) WITH (fillfactor = 50);
