-- Each query returns the rows that violate one invariant; no row means it holds. Queries on history take $1, the number of
-- newest rows to check, so that the cost does not grow with history; null: all rows. The last parameter is the tenant whose
-- rows are named; null: all tenants. Shards belong to no tenant.

-- name: firing_held
-- An open hold: nothing fires and no worker registers.
SELECT 'restore' AS offender, 'firing is held since ' || held_at || ', after a restore of the backup of ' || backup_at
       || ': decide what the gap means with mainspring db resume' AS what
FROM holds WHERE ended_at IS NULL;

-- name: invariant_i1
-- I1 one execution per fire: none is both live and final, none final twice.
WITH newest AS MATERIALIZED (
    SELECT execution_id, tenant_id FROM history ORDER BY execution_id DESC LIMIT $1::int
)
SELECT execution_id::text AS offender, 'live and final at once' AS what
FROM newest n JOIN executions e USING (execution_id) WHERE $2::int IS NULL OR n.tenant_id = $2
UNION ALL
SELECT execution_id::text, 'final ' || count(*) || ' times' FROM newest WHERE $2::int IS NULL OR tenant_id = $2
GROUP BY execution_id HAVING count(*) > 1
LIMIT 20;

-- name: invariant_i2
-- I2 every shard is decided up to 10 s ago: its owner moves the watermark also when nothing is due.
SELECT shard::text AS offender, 'decided only up to ' || watermark AS what
FROM shards WHERE watermark < db_now() - interval '10 s' ORDER BY shard LIMIT 20;

-- name: invariant_i4
-- I4 never early: no execution was queued before its fire.
SELECT execution_id::text AS offender, 'queued ' || (fire_at - queued_at) || ' early' AS what
FROM (
    (SELECT execution_id, tenant_id, trigger, queued_at, fire_at FROM executions ORDER BY execution_id DESC LIMIT $1::int)
    UNION ALL
    (SELECT execution_id, tenant_id, trigger, queued_at, fire_at FROM history ORDER BY execution_id DESC LIMIT $1::int)
) AS newest
WHERE trigger = 'fire' AND queued_at < fire_at AND ($2::int IS NULL OR tenant_id = $2) LIMIT 20;

-- name: invariant_i9
-- I9 running if and only if it has a session.
SELECT execution_id::text AS offender, 'state ' || state || ', session ' || coalesce(session_id::text, 'none') AS what
FROM executions WHERE (state = 'running') <> (session_id IS NOT NULL) AND ($1::int IS NULL OR tenant_id = $1) LIMIT 20;

-- name: invariant_i6
-- I6, I7 attempts of one execution are serial and their numbers grow.
SELECT a.execution_id::text AS offender, 'attempts ' || a.attempt || ' and ' || b.attempt || ' overlap' AS what
FROM (SELECT * FROM attempts ORDER BY execution_id DESC, attempt DESC LIMIT $1::int) AS a
JOIN attempts b ON b.execution_id = a.execution_id AND b.attempt > a.attempt
WHERE b.started_at < a.ended_at AND ($2::int IS NULL OR a.tenant_id = $2) LIMIT 20;

-- name: invariant_i14
-- I14 each execution of the last day that failed or was lost has a dead letter, and no other has. Executions that ended
-- before migration 8 have none.
(SELECT h.execution_id::text AS offender, h.state || ' without a dead letter' AS what
 FROM (
    SELECT execution_id, tenant_id, state, finished_at FROM history
    WHERE state IN ('failed', 'timed_out', 'lost') AND finished_at > (SELECT db_now()) - interval '1 day' LIMIT $1::int
 ) AS h
 WHERE ($2::int IS NULL OR h.tenant_id = $2) AND h.finished_at > (SELECT applied_at FROM migrations WHERE number = 8)
   AND NOT EXISTS (SELECT FROM dead_letters d WHERE d.dead_letter_id = h.execution_id)
 LIMIT 20)
UNION ALL
(SELECT d.dead_letter_id::text, 'a dead letter of an execution that did not fail'
 FROM (
    SELECT dead_letter_id, tenant_id FROM dead_letters WHERE created_at > (SELECT db_now()) - interval '1 day'
    ORDER BY created_at DESC LIMIT $1::int
 ) AS d
 WHERE ($2::int IS NULL OR d.tenant_id = $2) AND NOT EXISTS (
    SELECT FROM history h WHERE h.execution_id = d.dead_letter_id AND h.state IN ('failed', 'timed_out', 'lost')
      AND h.finished_at > (SELECT db_now()) - interval '2 days')
 LIMIT 20);

-- name: invariant_i13
-- I12, I13 the counters of open runs and blocked steps equal a recount; no step starts before its parents ended.
SELECT r.run_id::text AS offender, 'counts ' || r.open_steps || ' open steps, has ' || count(s.step) AS what
FROM runs r JOIN run_steps s ON s.run_id = r.run_id AND s.item = -1 AND s.finished_at IS NULL
WHERE r.finished_at IS NULL AND ($1::int IS NULL OR r.tenant_id = $1)
GROUP BY r.run_id HAVING count(s.step) <> r.open_steps
UNION ALL
SELECT s.run_id || ' step ' || s.step, 'is ' || s.state || ' with ' || s.unmet || ' steps before it open'
FROM runs r JOIN run_steps s USING (run_id)
WHERE r.finished_at IS NULL AND s.item = -1 AND ($1::int IS NULL OR r.tenant_id = $1)
  AND (s.unmet < 0 OR s.unmet > 0 AND s.state IN ('running', 'waiting') OR s.unmet = 0 AND s.state = 'blocked')
LIMIT 20;

-- name: invariant_i21
-- I21 a closed run has only final steps, an open one at least one open step, and each is an execution in the same state.
SELECT r.run_id::text AS offender, 'has ended, and step ' || s.step || ' is ' || s.state AS what
FROM (
    SELECT run_id, tenant_id FROM runs WHERE finished_at > (SELECT db_now()) - interval '1 hour'
    ORDER BY finished_at DESC LIMIT $1::int
) AS r
CROSS JOIN LATERAL (SELECT * FROM run_steps WHERE run_id = r.run_id AND finished_at IS NULL OFFSET 0) AS s
WHERE $2::int IS NULL OR r.tenant_id = $2
UNION ALL
SELECT r.run_id::text, 'is open with no open step'
FROM runs r WHERE r.finished_at IS NULL AND r.open_steps = 0 AND ($2::int IS NULL OR r.tenant_id = $2)
UNION ALL
SELECT r.run_id::text, 'is open, and its execution is not running'
FROM runs r LEFT JOIN executions e ON e.execution_id = r.run_id
WHERE r.finished_at IS NULL AND e.state IS DISTINCT FROM 'running' AND ($2::int IS NULL OR r.tenant_id = $2)
LIMIT 20;

-- name: invariant_i15
-- I15 running executions respect concurrency keys (started since the limit was last written) and queue caps.
SELECT l.key AS offender, count(*) || ' running, at most ' || l.most || ' allowed' AS what
FROM executions e JOIN limits l ON l.limit_id = e.limit_id
WHERE e.session_id IS NOT NULL AND e.started_at > l.used_at AND ($1::int IS NULL OR l.tenant_id = $1)
GROUP BY l.limit_id HAVING count(*) > l.most
UNION ALL
SELECT q.name, count(*) || ' running, at most ' || q.cap || ' may'
FROM executions e JOIN queues q ON q.tenant_id = e.tenant_id AND q.name = e.queue
WHERE e.session_id IS NOT NULL AND e.started_at > q.updated_at + interval '5 s' AND ($1::int IS NULL OR q.tenant_id = $1)
GROUP BY q.tenant_id, q.name HAVING count(*) > q.cap
LIMIT 20;

-- name: invariant_i16
-- I16 no execution runs on a session that has been dead for more than 10 s.
SELECT e.execution_id::text AS offender, 'its session ended at ' || coalesce(s.ended_at, s.lease_expires_at) AS what
FROM executions e JOIN sessions s USING (session_id)
WHERE e.state = 'running' AND coalesce(s.ended_at, s.lease_expires_at) < db_now() - interval '10 s'
  AND ($1::int IS NULL OR e.tenant_id = $1) LIMIT 20;

-- name: invariant_i17
-- I17 each shard is owned, or was until less than 10 s ago.
SELECT shard::text AS offender, coalesce('its owner ' || owner || ' is gone', 'no scheduler owns it') AS what
FROM shards
WHERE (owner IS NULL AND watermark < db_now() - interval '10 s') OR lease_expires_at < db_now() - interval '10 s'
ORDER BY shard LIMIT 20;

-- name: invariant_i18
-- I18 no execution without special demands or limits is queued for more than 5 s while a worker of its queue is idle.
-- All executions of a line have the same demands, so one of each line is checked.
SELECT e.execution_id::text AS offender, 'queued since ' || e.queued_at || ' in ' || e.queue AS what
FROM (SELECT line_id, demand, limit_id + rate_id AS limits FROM lines UNION ALL SELECT 0, NULL, 0) AS l
CROSS JOIN LATERAL (
    SELECT execution_id, tenant_id, queue, queued_at FROM executions
    WHERE state = 'queued' AND line_id = l.line_id AND queued_at < (SELECT db_now()) - interval '5 s' LIMIT 1
) AS e
LEFT JOIN queues q ON q.tenant_id = e.tenant_id AND q.name = e.queue
LEFT JOIN tenants t ON t.tenant_id = e.tenant_id
WHERE q.cap IS NULL AND q.paused_at IS NULL AND t.cap IS NULL AND l.limits = 0 AND ($1::int IS NULL OR e.tenant_id = $1)
  AND EXISTS (
      SELECT FROM sessions s
      WHERE s.state = 'active' AND s.lease_expires_at > db_now() AND s.busy < s.slots AND e.queue = ANY (s.queues)
        AND (s.tenant_id = e.tenant_id OR s.shared) AND s.seen_at > db_now() - interval '6 s'
        AND (l.demand IS NULL OR l.demand = '{"kind":"' || (l.demand::jsonb ->> 'kind') || '"}'
                             AND split_part(l.demand::jsonb ->> 'kind', ' ', 1) = ANY (s.kinds)
                             AND (split_part(l.demand::jsonb ->> 'kind', ' ', 2) = ''
                                  OR s.function_set IS NULL AND 'functions' <> ALL (s.takes)
                                  OR EXISTS (SELECT FROM function_sets f
                                             WHERE f.function_set = s.function_set AND f.tenant_id = s.tenant_id
                                               AND split_part(l.demand::jsonb ->> 'kind', ' ', 2) = ANY (f.functions))))
  )
LIMIT 20;

-- name: invariant_i19
-- I19 chained audit entries follow one another, exist, and end where the chain does. Their content is hashed elsewhere.
WITH newest AS MATERIALIZED (
    SELECT c.*, lag(seq) OVER each AS seq_before, lag(hash) OVER each AS hash_before
    FROM (SELECT * FROM audit_chain ORDER BY audit_id DESC LIMIT $1::int) AS c
    WINDOW each AS (PARTITION BY tenant_id ORDER BY seq)
)
SELECT tenant_id || ':' || seq AS offender, 'does not follow the audit entry before it' AS what FROM newest
WHERE seq_before IS NOT NULL AND (seq_before, hash_before) IS DISTINCT FROM (seq - 1, previous)
  AND ($2::int IS NULL OR tenant_id = $2)
UNION ALL
SELECT n.tenant_id || ':' || n.seq, 'audit entry ' || n.audit_id || ' does not exist' FROM newest n
WHERE NOT EXISTS (SELECT FROM audit a WHERE a.audit_id = n.audit_id) AND ($2::int IS NULL OR n.tenant_id = $2)
UNION ALL
SELECT h.tenant_id || ':' || h.seq, 'is the last audit entry, and is missing or has another hash' FROM audit_chains h
WHERE h.seq > 0 AND ($2::int IS NULL OR h.tenant_id = $2)
  AND NOT EXISTS (SELECT FROM audit_chain c WHERE c.tenant_id = h.tenant_id AND c.seq = h.seq AND c.hash = h.hash)
LIMIT 20;

-- name: invariant_i20
-- I20 no row refers to another tenant.
SELECT e.execution_id::text AS offender, 'execution and job differ in tenant' AS what
FROM (SELECT * FROM executions ORDER BY execution_id DESC LIMIT $1::int) AS e
JOIN jobs j USING (job_id)
WHERE e.tenant_id <> j.tenant_id AND ($2::int IS NULL OR $2 IN (e.tenant_id, j.tenant_id)) LIMIT 20;

-- name: saved_under_other_rules
-- Number of active jobs with instants computed under other time zone rules, by version of the rules.
SELECT v.tzdata, count(*) AS jobs FROM jobs j JOIN job_versions v USING (job_id, version)
WHERE j.deleted_at IS NULL AND v.tzdata <> $1 AND ($2::int IS NULL OR j.tenant_id = $2)
  AND jsonb_typeof(v.spec -> 'schedule') IN ('object', 'array')
GROUP BY v.tzdata ORDER BY v.tzdata;

-- name: due_waiting
-- Waiting executions that should have been promoted more than 10 s ago.
SELECT execution_id::text AS offender, 'waiting, but due at ' || due_at AS what
FROM executions WHERE state = 'waiting' AND due_at < db_now() - interval '10 s' AND ($1::int IS NULL OR tenant_id = $1)
LIMIT 20;

-- name: overdue_starts
-- Executions that should have been skipped more than a minute ago because they missed start_by.
SELECT execution_id::text AS offender, 'should have started by ' || start_by_at AS what
FROM executions
WHERE start_by_at < (SELECT db_now()) - interval '1 min' AND attempt = 0 AND state IN ('waiting', 'blocked', 'queued')
  AND due_at < 'infinity' AND ($1::int IS NULL OR tenant_id = $1) LIMIT 20;

-- name: overlong_pauses
-- Jobs that should have been resumed more than a minute ago.
SELECT name AS offender, 'should have been resumed at ' || paused_until AS what
FROM jobs WHERE paused_until < (SELECT db_now()) - interval '1 min' AND deleted_at IS NULL
  AND ($1::int IS NULL OR tenant_id = $1) LIMIT 20;

-- name: needs_of_the_deleted
-- Jobs that need a deleted job, which can't succeed; deletions before dependencies were checked left them.
SELECT c.name AS offender, 'needs ' || p.name || ', which was deleted: mainspring jobs needs remove ' || c.name || ' ' || p.name
       AS what
FROM job_needs n JOIN jobs p ON p.job_id = n.parent_id AND p.deleted_at IS NOT NULL
JOIN jobs c ON c.job_id = n.child_id AND c.deleted_at IS NULL
WHERE $1::int IS NULL OR n.tenant_id = $1 LIMIT 20;

-- name: overfed_backfills
-- Backfills with more live executions than their concurrency.
SELECT b.backfill_id::text AS offender, count(*) || ' live, at most ' || b.concurrency AS what
FROM backfills b JOIN executions e USING (backfill_id) WHERE $1::int IS NULL OR b.tenant_id = $1
GROUP BY b.backfill_id HAVING count(*) > b.concurrency LIMIT 20;
