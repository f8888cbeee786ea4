-- name: add_output
-- Adds bytes ($2) to today's output of tenants ($1), in UTC; deletes what is older than a week. Returns the quota of every
-- tenant that has one, and what of it is used.
WITH today AS (SELECT (db_now() AT TIME ZONE 'UTC')::date AS day), added AS (
    INSERT INTO tenant_output AS o (tenant_id, day, bytes)
    SELECT n.tenant_id, today.day, n.bytes FROM today, unnest($1::int[], $2::bigint[]) AS n (tenant_id, bytes)
    ORDER BY n.tenant_id
    ON CONFLICT (tenant_id, day) DO UPDATE SET bytes = o.bytes + excluded.bytes
    RETURNING tenant_id, bytes
), gone AS (
    DELETE FROM tenant_output WHERE (tenant_id, day) IN (
        SELECT tenant_id, day FROM tenant_output WHERE day < (SELECT day FROM today) - 7 FOR UPDATE SKIP LOCKED
    )
)
SELECT t.tenant_id, t.output_per_day AS most, coalesce(a.bytes, o.bytes, 0) AS used
FROM tenants t LEFT JOIN added a USING (tenant_id)
LEFT JOIN tenant_output o ON o.tenant_id = t.tenant_id AND o.day = (SELECT day FROM today)
WHERE t.output_per_day IS NOT NULL;

-- name: output_today
-- Today's output of tenants in bytes.
SELECT tenant_id, bytes FROM tenant_output WHERE day = (db_now() AT TIME ZONE 'UTC')::date;
