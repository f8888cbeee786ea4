-- Each query returns offenders against one promise; no row means it holds.

-- name: invariant_i1
-- I1 one execution per fire: none is both live and final, none final twice.
SELECT execution_id::text AS offender, 'live and final at once' AS what
FROM executions e WHERE EXISTS (SELECT FROM history h WHERE h.execution_id = e.execution_id)
UNION ALL
SELECT execution_id::text, 'final ' || count(*) || ' times' FROM history GROUP BY execution_id HAVING count(*) > 1
LIMIT 20;

-- name: invariant_i4
-- I4 never early: nothing was queued before its fire.
SELECT execution_id::text AS offender, 'queued ' || (fire_at - queued_at) || ' early' AS what
FROM all_executions WHERE trigger = 'fire' AND queued_at < fire_at LIMIT 20;

-- name: invariant_i9
-- I9 running if and only if it has a session.
SELECT execution_id::text AS offender, 'state ' || state || ', session ' || coalesce(session_id::text, 'none') AS what
FROM executions WHERE (state = 'running') <> (session_id IS NOT NULL) LIMIT 20;

-- name: invariant_i6
-- I6, I7 attempts of one execution are serial and their numbers grow.
SELECT a.execution_id::text AS offender, 'attempts ' || a.attempt || ' and ' || b.attempt || ' overlap' AS what
FROM attempts a JOIN attempts b ON b.execution_id = a.execution_id AND b.attempt > a.attempt
WHERE b.started_at < a.ended_at LIMIT 20;

-- name: invariant_i15
-- I15 what runs is within its concurrency key, counting what started since the limit was last written, and within caps.
SELECT l.key AS offender, count(*) || ' run, at most ' || l.most || ' may' AS what
FROM executions e JOIN limits l ON l.limit_id = e.limit_id
WHERE e.session_id IS NOT NULL AND e.started_at > l.used_at GROUP BY l.limit_id HAVING count(*) > l.most
UNION ALL
SELECT q.name, count(*) || ' run, at most ' || q.cap || ' may'
FROM executions e JOIN queues q ON q.tenant_id = e.tenant_id AND q.name = e.queue
WHERE e.session_id IS NOT NULL AND e.started_at > q.updated_at + interval '5 s'
GROUP BY q.tenant_id, q.name HAVING count(*) > q.cap
LIMIT 20;

-- name: invariant_i16
-- I16 nothing runs on a session that has been dead for more than 10 s.
SELECT e.execution_id::text AS offender, 'its session ended at ' || coalesce(s.ended_at, s.lease_expires_at) AS what
FROM executions e JOIN sessions s USING (session_id)
WHERE e.state = 'running' AND coalesce(s.ended_at, s.lease_expires_at) < db_now() - interval '10 s' LIMIT 20;

-- name: invariant_i17
-- I17 each shard is owned, or was until less than 10 s ago.
SELECT shard::text AS offender, 'no scheduler owns it' AS what
FROM shards WHERE owner IS NULL OR lease_expires_at < db_now() - interval '10 s' ORDER BY shard LIMIT 20;

-- name: invariant_i18
-- I18 nothing without special demands or limits is queued for more than 5 s while a worker that serves its queue is idle.
SELECT e.execution_id::text AS offender, 'queued since ' || e.queued_at || ' in ' || e.queue AS what
FROM executions e LEFT JOIN lines l ON l.line_id = e.line_id
LEFT JOIN queues q ON q.tenant_id = e.tenant_id AND q.name = e.queue
LEFT JOIN tenants t ON t.tenant_id = e.tenant_id
WHERE e.state = 'queued' AND e.queued_at < db_now() - interval '5 s'
  AND q.cap IS NULL AND q.paused_at IS NULL AND t.cap IS NULL AND coalesce(l.limit_id + l.rate_id, 0) = 0
  AND EXISTS (
      SELECT FROM sessions s
      WHERE s.state = 'active' AND s.lease_expires_at > db_now() AND s.busy < s.slots AND e.queue = ANY (s.queues)
        AND (s.tenant_id = e.tenant_id OR s.shared) AND s.seen_at > db_now() - interval '6 s'
        AND (l.demand IS NULL OR l.demand = '{"kind":"' || (l.demand::jsonb ->> 'kind') || '"}'
                             AND l.demand::jsonb ->> 'kind' = ANY (s.kinds))
  )
LIMIT 20;

-- name: invariant_i20
-- I20 no row refers to another tenant.
SELECT e.execution_id::text AS offender, 'execution and job differ in tenant' AS what
FROM executions e JOIN jobs j USING (job_id) WHERE e.tenant_id <> j.tenant_id LIMIT 20;

-- name: due_waiting
-- Waiting executions that should have been promoted more than 10 s ago.
SELECT execution_id::text AS offender, 'waiting, but due at ' || due_at AS what
FROM executions WHERE state = 'waiting' AND due_at < db_now() - interval '10 s' LIMIT 20;
