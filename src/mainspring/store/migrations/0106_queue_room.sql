-- Whether a tenant that is not suspended has room for more executions that have not started. Locks its row until the end of
-- the transaction, and counts with a new snapshot, so that a statement can check its quota and insert in one round trip.
CREATE FUNCTION has_queue_room(tenant int, wanted int) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    most int;
BEGIN
    SELECT max_queued INTO most FROM tenants WHERE tenant_id = tenant AND suspended_at IS NULL FOR NO KEY UPDATE;
    RETURN FOUND AND (most IS NULL OR wanted + (SELECT count(*) FROM (
        SELECT FROM executions e WHERE e.tenant_id = tenant AND e.state IN ('waiting', 'blocked', 'queued') LIMIT most
    ) AS pending) <= most);
END $$;
