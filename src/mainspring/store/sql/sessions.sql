-- name: upsert_worker
-- Inserts a worker, or finds it by name.
INSERT INTO workers (worker_id, tenant_id, name) VALUES ($1, $2, $3)
ON CONFLICT (tenant_id, name) DO UPDATE SET name = EXCLUDED.name
RETURNING worker_id;

-- name: insert_session
-- Starts a session, unless there is a hold.
INSERT INTO sessions (session_id, tenant_id, worker_id, state, host, version, slots, queues, kinds, labels,
                      resources, shared, lease_s, lease_expires_at, takes, token_id, key_digest, uid, shares_server_user)
SELECT $1, $2, $3, 'active', $4, $5, $6, $7, $8, $9, $11, $12, $10, db_now() + make_interval(secs => $10), $13,
       $14, $15, $16, $17
WHERE NOT EXISTS (SELECT FROM holds WHERE ended_at IS NULL)
RETURNING session_id;

-- name: renew_sessions
-- Renews session leases; one lease covers all executions of a session. Ended sessions are not returned, nor those of
-- another token or key.
WITH beats AS (
    SELECT * FROM unnest($1::uuid[], $2::int[], $3::int[], $4::boolean[], $5::jsonb[], $7::uuid[], $8::bytea[])
        AS h (session_id, tenant_id, busy, draining, progress, token_id, key_digest)
), locked AS (
    SELECT s.session_id FROM sessions s JOIN beats USING (session_id)
    WHERE s.tenant_id = beats.tenant_id AND s.ended_at IS NULL
      AND (s.token_id IS NULL OR s.token_id = beats.token_id)
      AND (s.key_digest IS NULL OR s.key_digest = beats.key_digest)
    ORDER BY s.session_id FOR UPDATE OF s
)
UPDATE sessions s
SET lease_expires_at = db_now() + make_interval(secs => coalesce(s.lease_s, $6)), seen_at = db_now(), busy = beats.busy,
    progress = beats.progress, state = CASE WHEN beats.draining THEN 'draining' ELSE s.state END
FROM locked JOIN beats USING (session_id)
WHERE s.session_id = locked.session_id
RETURNING s.session_id, coalesce(s.lease_s, $6) AS lease_s;

-- name: session_by_id
-- A live session with the fields that dispatch needs.
SELECT s.session_id, s.tenant_id, s.slots, s.queues, s.kinds, s.labels, s.resources, s.shared, s.token_id, s.key_digest,
       s.takes, s.function_set, f.functions, f.modules
FROM sessions s LEFT JOIN function_sets f USING (tenant_id, function_set)
WHERE s.session_id = $1 AND s.tenant_id = $2 AND s.ended_at IS NULL;

-- name: state_functions
-- Stores the functions that a live session has, under the digest of what it states: a fleet with the same code shares
-- one row. Checks the token and key of the session as a heartbeat does.
WITH stated AS (
    UPDATE sessions SET function_set = $3
    WHERE session_id = $1 AND tenant_id = $2 AND ended_at IS NULL
      AND (token_id IS NULL OR token_id = $6) AND (key_digest IS NULL OR key_digest = $7)
    RETURNING session_id
), stored AS (
    INSERT INTO function_sets (tenant_id, function_set, functions, modules)
    SELECT $2, $3, $4::text[], $5::jsonb FROM stated
    ON CONFLICT (tenant_id, function_set) DO UPDATE SET used_at = db_now()
    WHERE function_sets.used_at < db_now() - interval '1 day'
)
SELECT session_id FROM stated;

-- name: function_sets
-- Functions by the digest that sessions refer to; equal digests of several tenants have equal functions.
SELECT DISTINCT ON (function_set) function_set, functions, modules FROM function_sets WHERE function_set = ANY ($1::bytea[]);

-- name: forget_function_sets
-- Deletes sets of functions that no session refers to.
DELETE FROM function_sets f
WHERE f.used_at < db_now() - interval '7 days'
  AND NOT EXISTS (SELECT FROM sessions s WHERE s.function_set = f.function_set AND s.tenant_id = f.tenant_id);

-- name: session_proof
-- The token and the key that may act for a session, ended or not.
SELECT token_id, key_digest FROM sessions WHERE session_id = $1 AND tenant_id = $2;

-- name: session_keys
-- The digests of the keys of sessions, ended or not, that have one.
SELECT session_id, key_digest FROM sessions WHERE session_id = ANY ($1::uuid[]) AND key_digest IS NOT NULL;

-- name: running_of_sessions
-- The running executions of these sessions. `old`: the worker should have received it by now. `disclaims`: only the
-- worker can say that it has not. Of any tenant: a shared session runs for all of them.
SELECT e.session_id, e.execution_id, e.attempt, e.cancel_at IS NOT NULL AS cancelling,
       e.started_at < db_now() - make_interval(secs => $2) AS old,
       EXISTS (SELECT FROM evictions v WHERE v.execution_id = e.execution_id AND v.attempt = e.attempt) AS leaving,
       'disclaim' = ANY (s.takes) AS disclaims
FROM executions e JOIN sessions s ON s.session_id = e.session_id
WHERE e.session_id = ANY ($1::uuid[]) AND e.state = 'running';

-- name: session_cancels
-- The executions of this session that are being cancelled.
SELECT e.execution_id FROM executions e JOIN sessions s USING (session_id)
WHERE s.session_id = $1 AND s.tenant_id = $2 AND e.state = 'running' AND e.cancel_at IS NOT NULL;

-- name: end_session
-- Ends a session: reported by the worker, or by its guardian after the worker died.
UPDATE sessions SET state = $3, ended_at = db_now()
WHERE session_id = $1 AND tenant_id = $2 AND ended_at IS NULL
  AND (token_id IS NULL OR token_id = $4) AND (key_digest IS NULL OR key_digest = $5)
RETURNING session_id;

-- name: expire_sessions
-- Marks sessions lost whose lease has expired by database time. The last row has the time until the next expiry.
WITH expired AS (
    UPDATE sessions SET state = 'lost', ended_at = db_now()
    WHERE session_id IN (
        SELECT session_id FROM sessions WHERE ended_at IS NULL AND lease_expires_at < (SELECT db_now())
        ORDER BY session_id FOR UPDATE SKIP LOCKED
    )
    RETURNING session_id
)
SELECT session_id, NULL::float8 AS next_end_s FROM expired
UNION ALL
SELECT NULL, extract(epoch FROM min(lease_expires_at) - db_now())::float8
FROM sessions WHERE ended_at IS NULL AND lease_expires_at >= (SELECT db_now());

-- name: orphans
-- Running executions whose session has ended, for the rescue.
SELECT e.execution_id, e.attempt, e.session_id, w.name AS worker_name, s.state AS session_state,
       s.labels ? 'worker/spot' AS spot
FROM sessions s JOIN executions e USING (session_id) JOIN workers w USING (worker_id)
WHERE s.ended_at IS NOT NULL AND e.state = 'running'
ORDER BY e.execution_id LIMIT $1;

-- name: list_workers
-- Each worker with its latest session.
SELECT w.worker_id, w.name, s.session_id, s.state, s.host, s.version, s.slots, s.busy, s.queues, s.kinds, s.labels,
       s.resources, s.shared,
       s.started_at, s.seen_at, s.lease_expires_at, s.ended_at, db_now() AS now, s.takes, s.function_set,
       f.functions[1:20] AS functions, cardinality(f.functions) AS function_count, f.modules
FROM workers w
JOIN LATERAL (
    SELECT * FROM sessions WHERE worker_id = w.worker_id AND (ended_at IS NULL OR ended_at > db_now() - interval '1 day')
    ORDER BY (ended_at IS NULL) DESC, started_at DESC LIMIT $2
) AS s ON true
LEFT JOIN function_sets f ON f.function_set = s.function_set AND f.tenant_id = s.tenant_id
WHERE w.tenant_id = $1
ORDER BY w.name, s.started_at DESC LIMIT $3;

-- name: worker_sessions
-- The latest sessions of one worker, by its name or id, newest first.
SELECT w.worker_id, w.name, s.session_id, s.state, s.host, s.version, s.slots, s.busy, s.queues, s.kinds, s.labels,
       s.resources, s.shared, s.started_at, s.seen_at, s.lease_expires_at, s.ended_at, db_now() AS now, s.takes,
       s.function_set, f.functions[1:20] AS functions, cardinality(f.functions) AS function_count, f.modules
FROM workers w JOIN sessions s USING (worker_id)
LEFT JOIN function_sets f ON f.function_set = s.function_set AND f.tenant_id = s.tenant_id
WHERE w.tenant_id = $1 AND (w.name = $2 OR w.worker_id::text = $2) ORDER BY s.started_at DESC LIMIT $3;

-- name: executions_of_sessions
-- The running executions of these sessions.
SELECT execution_id FROM executions
WHERE session_id = ANY ($2::uuid[]) AND tenant_id = $1 ORDER BY execution_id DESC LIMIT $3;

-- name: attempts_of_sessions
-- The latest unsuccessful attempts of these sessions, with the current state of their executions.
SELECT a.execution_id, a.attempt, a.outcome, a.error, a.started_at, a.ended_at,
       coalesce(x.state, h.state) AS state, j.name AS job_name
FROM (
    SELECT * FROM attempts WHERE session_id = ANY ($2::uuid[]) AND tenant_id = $1 ORDER BY ended_at DESC LIMIT $3
) AS a
LEFT JOIN executions x USING (execution_id)
LEFT JOIN LATERAL (
    -- The execution finished at or after its attempt, up to clock differences: this prunes older partitions.
    SELECT state, job_id FROM history
    WHERE x.execution_id IS NULL AND execution_id = a.execution_id AND finished_at >= a.ended_at - interval '1 minute'
    ORDER BY finished_at LIMIT 1
) AS h ON true
LEFT JOIN jobs j ON j.job_id = coalesce(x.job_id, h.job_id)
ORDER BY a.ended_at DESC;

-- name: exposed_workers
-- Live workers of a tenant whose jobs could reach more than their own: those of root, and of the server's own user.
SELECT DISTINCT w.name, s.host, s.uid, s.shares_server_user FROM sessions s JOIN workers w USING (worker_id)
WHERE s.ended_at IS NULL AND s.tenant_id = $1 AND (s.uid = 0 OR s.shares_server_user) ORDER BY w.name LIMIT $2;

-- name: set_draining
-- Lets the open session of a worker drain: it claims nothing more. Or ends that, unless the worker itself is stopping,
-- which its next heartbeat says again. Returns nothing if the session is in that state already.
UPDATE sessions s SET state = CASE WHEN $3 THEN 'draining' ELSE 'active' END
FROM workers w
WHERE w.worker_id = s.worker_id AND w.tenant_id = $1 AND w.name = $2 AND s.ended_at IS NULL
  AND s.state = CASE WHEN $3 THEN 'active' ELSE 'draining' END
RETURNING s.session_id;
