-- name: all_rules
-- The rules that tenants wrote; the leader caches them.
SELECT tenant_id, name, rule FROM alert_rules;

-- name: tenant_rules
-- The rules that a tenant wrote.
SELECT name, rule, updated_at, updated_by FROM alert_rules WHERE tenant_id = $1;

-- name: upsert_rule
-- Writes a rule, which may replace a built-in one. With $5 only if the rule is still as of $6; null: not written yet.
INSERT INTO alert_rules (tenant_id, name, rule, updated_by)
SELECT $1, $2, $3, $4
WHERE NOT $5 OR $6::timestamptz IS NULL
   OR EXISTS (SELECT FROM alert_rules WHERE tenant_id = $1 AND name = $2 AND updated_at = $6)
ON CONFLICT (tenant_id, name) DO UPDATE SET rule = $3, updated_at = db_now(), updated_by = $4
WHERE NOT $5 OR alert_rules.updated_at = $6
RETURNING name;

-- name: delete_rule
-- Deletes a rule; a built-in one gets its defaults back.
DELETE FROM alert_rules WHERE tenant_id = $1 AND name = $2 RETURNING name;

-- name: open_alerts
-- Alerts of all tenants that are not resolved.
SELECT tenant_id, rule, key, state, since_at FROM alerts WHERE state <> 'resolved';

-- name: raise_alerts
-- Inserts or updates the alerts of broken rules. A second leader updates the alert of the first; a firing alert never
-- returns to pending.
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
-- Deletes alerts whose rule is kept again before they fired.
DELETE FROM alerts a USING unnest($1::int[], $2::text[], $3::text[]) AS o (tenant_id, rule, key)
WHERE a.tenant_id = o.tenant_id AND a.rule = o.rule COLLATE "C" AND a.key = o.key COLLATE "C" AND a.state = 'pending';

-- name: resolve_alerts
-- Resolves firing alerts whose rule is kept again.
UPDATE alerts a SET state = 'resolved', resolved_at = db_now()
FROM unnest($1::int[], $2::text[], $3::text[]) AS o (tenant_id, rule, key)
WHERE a.tenant_id = o.tenant_id AND a.rule = o.rule COLLATE "C" AND a.key = o.key COLLATE "C" AND a.state = 'firing'
RETURNING a.*;

-- name: mark_notified
-- Marks a firing alert as sent. Returns a row only once, so that it is sent only once.
UPDATE alerts SET told_at = db_now() WHERE alert_id = $1 AND state = 'firing' AND told_at IS NULL RETURNING told_at;

-- name: list_alerts
-- A tenant's alerts, newest first, before an id (ids start with their time); in one state, if given.
SELECT * FROM alerts
WHERE tenant_id = $1 AND alert_id < $2 AND ($4::text IS NULL OR state = $4)
ORDER BY alert_id DESC LIMIT $3;

-- name: firing_counts
-- Number of firing alerts by severity, of a tenant or with null of all, for metrics.
SELECT severity, count(*) AS n FROM alerts WHERE state = 'firing' AND ($1::int IS NULL OR tenant_id = $1) GROUP BY severity;

-- name: firing_count
-- Number of firing alerts of a tenant.
SELECT count(*) FROM alerts WHERE tenant_id = $1 AND state = 'firing';

-- name: forget_alerts
-- Deletes alerts resolved more than 90 days ago.
DELETE FROM alerts WHERE alert_id IN (
    SELECT alert_id FROM alerts WHERE state = 'resolved' AND resolved_at < db_now() - interval '90 days' LIMIT $1
);
