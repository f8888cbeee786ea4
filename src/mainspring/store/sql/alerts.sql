-- name: all_rules
-- Every tenant's own rules: what the leader keeps in memory.
SELECT tenant_id, name, rule FROM alert_rules;

-- name: tenant_rules
-- A tenant's own rules.
SELECT name, rule, updated_at, updated_by FROM alert_rules WHERE tenant_id = $1;

-- name: upsert_rule
-- Writes a rule, perhaps in place of a built-in one.
INSERT INTO alert_rules (tenant_id, name, rule, updated_by) VALUES ($1, $2, $3, $4)
ON CONFLICT (tenant_id, name) DO UPDATE SET rule = $3, updated_at = db_now(), updated_by = $4
RETURNING pg_notify('mainspring_channels', '');

-- name: delete_rule
-- Takes a rule away; a built-in one comes back as it was.
DELETE FROM alert_rules WHERE tenant_id = $1 AND name = $2 RETURNING pg_notify('mainspring_channels', '');

-- name: open_alerts
-- What is not resolved, of all tenants.
SELECT tenant_id, rule, key, state, since_at FROM alerts WHERE state <> 'resolved';

-- name: raise_alerts
-- What is broken now. Who comes second finds the first one's alert; what fires does not go back to pending.
INSERT INTO alerts AS a (alert_id, tenant_id, rule, key, severity, state, value, threshold, summary, since_at, fired_at)
SELECT r.*, now.at, CASE WHEN r.state = 'firing' THEN now.at END
FROM unnest($1::uuid[], $2::int[], $3::text[], $4::text[], $5::text[], $6::text[], $7::float8[], $8::float8[],
            $9::text[]) AS r (alert_id, tenant_id, rule, key, severity, state, value, threshold, summary)
CROSS JOIN (SELECT db_now()) AS now (at)
ON CONFLICT (tenant_id, rule, key) WHERE state <> 'resolved' DO UPDATE
SET value = excluded.value, threshold = excluded.threshold, summary = excluded.summary, severity = excluded.severity,
    state = CASE WHEN a.state = 'firing' THEN 'firing' ELSE excluded.state END,
    fired_at = coalesce(a.fired_at, excluded.fired_at)
RETURNING a.*;

-- name: drop_pending
-- What holds again before it fired was nothing.
DELETE FROM alerts a USING unnest($1::int[], $2::text[], $3::text[]) AS o (tenant_id, rule, key)
WHERE a.tenant_id = o.tenant_id AND a.rule = o.rule COLLATE "C" AND a.key = o.key COLLATE "C" AND a.state = 'pending';

-- name: resolve_alerts
-- What holds again after it fired.
UPDATE alerts a SET state = 'resolved', resolved_at = db_now()
FROM unnest($1::int[], $2::text[], $3::text[]) AS o (tenant_id, rule, key)
WHERE a.tenant_id = o.tenant_id AND a.rule = o.rule COLLATE "C" AND a.key = o.key COLLATE "C" AND a.state = 'firing'
RETURNING a.*;

-- name: mark_told
-- Whoever gets the row tells it: nobody is told twice.
UPDATE alerts SET told_at = db_now() WHERE alert_id = $1 AND state = 'firing' AND told_at IS NULL RETURNING told_at;

-- name: list_alerts
-- A tenant's alerts, the newest first, before an id (which begins with its time); those in one state, or all.
SELECT * FROM alerts
WHERE tenant_id = $1 AND alert_id < $2 AND ($4::text IS NULL OR state = $4)
ORDER BY alert_id DESC LIMIT $3;

-- name: firing_counts
-- How many alerts fire, by severity, of all tenants: for metrics.
SELECT severity, count(*) AS n FROM alerts WHERE state = 'firing' GROUP BY severity;

-- name: firing_count
-- How many alerts of a tenant fire.
SELECT count(*) FROM alerts WHERE tenant_id = $1 AND state = 'firing';

-- name: forget_alerts
-- Resolved alerts are kept for 90 days.
DELETE FROM alerts WHERE alert_id IN (
    SELECT alert_id FROM alerts WHERE state = 'resolved' AND resolved_at < db_now() - interval '90 days' LIMIT $1
);
