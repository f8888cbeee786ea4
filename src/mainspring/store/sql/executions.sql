-- name: insert_executions
-- Inserts manual and one-time executions: queued, or waiting when due later. Their trigger keys are new (random, or
-- just inserted into idempotency_keys), so history is not checked.
WITH wanted AS (
    SELECT w.execution_id, w.job_id, w.trigger, w.due_at, w.params, w.fire_at, claim_rank(w.due_ms, j.priority) AS rank,
           j.tenant_id, j.version, j.shard, j.priority, j.queue, j.start_by_s, clock.at AS now,
           coalesce(w.line_id, j.line_id) AS line_id,
           CASE WHEN w.line_id IS NULL THEN j.limit_id ELSE w.limit_id END AS limit_id
    FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::timestamptz[], $6::bigint[], $7::jsonb[], $9::int[],
                $10::bigint[], $11::timestamptz[])
        AS w (execution_id, job_id, trigger, due_at, due_ms, params, line_id, limit_id, fire_at)
    JOIN jobs j USING (job_id)
    CROSS JOIN (SELECT db_now()) AS clock (at)
    WHERE j.tenant_id = $1 AND j.deleted_at IS NULL
)
INSERT INTO executions (execution_id, job_id, tenant_id, version, shard, priority, state, trigger, queue,
                        rank, fire_at, due_at, queued_at, params, created_by, start_by_at, line_id, limit_id)
SELECT execution_id, job_id, tenant_id, version, shard, priority,
       CASE WHEN due_at > now THEN 'waiting' ELSE 'queued' END, trigger, queue,
       rank, fire_at, due_at, CASE WHEN due_at <= now THEN now END, params, $8,
       due_at + make_interval(secs => start_by_s), line_id, limit_id
FROM wanted
ON CONFLICT (execution_id) DO NOTHING
RETURNING execution_id, state, due_at, line_id, rank;

-- part: submission_columns
-- The columns of executions that submissions fill, in the order of submission_rows.
execution_id, job_id, tenant_id, version, shard, priority, state, trigger, queue, rank, fire_at, due_at, queued_at, params,
created_by, start_by_at, line_id, limit_id, session_id, attempt, started_at

-- part: submission_rows
-- Rows of requested executions: queued; waiting when due later ($6, in ms); or running on a session ($11) that has a free
-- slot for line $12 (direct handoff), if the session is alive, the execution still belongs to that line, and the tenant is
-- not suspended. A submission has no row if its job is deleted, or is not of its tenant or its version ($4; null: any). The
-- id is the due time followed by $1. OFFSET 0 makes the plan look up the job of each submission: while the table has no statistics, a generic plan
-- would otherwise begin with a scan of all jobs. Use a hot connection for many: on others the look-up may be a scan.
SELECT (lpad(to_hex(due_ms), 12, '0') || suffix)::uuid AS execution_id, job_id, tenant_id, version, shard, priority,
       CASE WHEN due_ms > now_ms THEN 'waiting' WHEN session_id IS NULL THEN 'queued' ELSE 'running' END AS state,
       'manual' AS trigger, queue, claim_rank(due_ms, priority) AS rank, coalesce(fire_at, due_at) AS fire_at, due_at,
       CASE WHEN due_ms <= now_ms THEN now END AS queued_at, params, created_by,
       due_at + make_interval(secs => start_by_s) AS start_by_at, line_id, limit_id, session_id,
       (session_id IS NOT NULL)::int AS attempt, CASE WHEN session_id IS NOT NULL THEN now END AS started_at
FROM (
    SELECT w.suffix, w.created_by, w.fire_at, w.params, j.job_id, j.tenant_id, j.version, j.shard, j.priority, j.queue,
           j.start_by_s, coalesce(w.line_id, j.line_id) AS line_id,
           CASE WHEN w.line_id IS NULL THEN j.limit_id ELSE w.limit_id END AS limit_id, s.session_id,
           clock.now, clock.now_ms, greatest(w.at_ms, clock.now_ms) AS due_ms,
           timestamptz 'epoch' + greatest(w.at_ms, clock.now_ms) * interval '1 millisecond' AS due_at
    FROM unnest($1::text[], $2::int[], $3::uuid[], $4::int[], $5::text[], $6::bigint[], $7::timestamptz[], $8::jsonb[],
                $9::int[], $10::bigint[], $11::uuid[], $12::int[])
        AS w (suffix, tenant_id, job_id, version, created_by, at_ms, fire_at, params, line_id, limit_id, session_id,
              session_line)
    CROSS JOIN (
        SELECT at, floor(extract(epoch FROM at) * 1000)::bigint FROM (SELECT db_now()) AS c (at)
    ) AS clock (now, now_ms)
    CROSS JOIN LATERAL (SELECT * FROM jobs WHERE jobs.job_id = w.job_id OFFSET 0) AS j
    LEFT JOIN sessions s ON s.session_id = w.session_id AND s.state = 'active' AND s.lease_expires_at > clock.now
     AND w.session_line = coalesce(w.line_id, j.line_id) AND w.at_ms IS NULL
     AND w.tenant_id <> ALL (ARRAY(SELECT t.tenant_id FROM tenants t WHERE t.suspended_at IS NOT NULL))
    WHERE j.tenant_id = w.tenant_id AND j.deleted_at IS NULL AND j.version = coalesce(w.version, j.version)
) AS wanted

-- part: submission_answer
-- First the columns of a claim, for direct handoff; then those that only the response needs.
execution_id, job_id, version, attempt, session_id, fire_at, due_at, params, line_id, rank, state, queue, priority,
queued_at, started_at, created_by, CASE WHEN session_id IS NOT NULL THEN (
    SELECT w.name FROM sessions s JOIN workers w USING (worker_id) WHERE s.session_id = executions.session_id
) END AS worker_name

-- part: new_keys
-- Inserts the idempotency keys $13 of `wanted`; `fresh` has the executions whose key was not known.
keyed AS MATERIALIZED (
    SELECT w.execution_id, w.tenant_id, w.job_id, k.pair ->> 0 AS key, decode(k.pair ->> 1, 'hex') AS digest
    FROM wanted w
    CROSS JOIN LATERAL (SELECT $13::jsonb -> substr(replace(w.execution_id::text, '-', ''), 13)) AS k (pair)
    WHERE k.pair IS NOT NULL
), fresh AS (
    INSERT INTO idempotency_keys (tenant_id, job_id, key, execution_id, digest)
    SELECT tenant_id, job_id, key, execution_id, digest FROM keyed ORDER BY tenant_id, job_id, key
    ON CONFLICT (tenant_id, job_id, key) DO NOTHING
    RETURNING execution_id
)

-- name: submit
-- Inserts manual executions of any tenants and jobs in one round trip. Their ids are new, so history is not checked.
INSERT INTO executions (<<submission_columns>>)
<<submission_rows>>
RETURNING <<submission_answer>>;

-- name: submit_many
-- Inserts manual executions of one user that wait in the lines of their jobs: a batch. They are numbered from 0, the ones
-- of each job ($3) from $4 to $5 together; $6 has 10 bytes of the id of each, $7 to $9 (null, or one of each) when it is
-- due, its nominal time and its params. Returns the jobs that exist and are of the tenant $1, whose executions were
-- inserted, and the time: neither the driver nor PostgreSQL handles each row once more.
WITH clock AS MATERIALIZED (
    SELECT at AS now, floor(extract(epoch FROM at) * 1000)::bigint AS now_ms FROM (SELECT db_now()) AS c (at)
), found AS MATERIALIZED (
    SELECT w.first, w.last, j.job_id, j.tenant_id, j.version, j.shard, j.priority, j.queue, j.start_by_s, j.line_id,
           j.limit_id
    FROM unnest($3::uuid[], $4::int[], $5::int[]) AS w (job_id, first, last)
    CROSS JOIN LATERAL (SELECT * FROM jobs WHERE jobs.job_id = w.job_id OFFSET 0) AS j
    WHERE j.tenant_id = $1 AND j.deleted_at IS NULL
), made AS (
    INSERT INTO executions (execution_id, job_id, tenant_id, version, shard, priority, state, trigger, queue, rank, fire_at,
                            due_at, queued_at, params, created_by, start_by_at, line_id, limit_id)
    SELECT (lpad(to_hex(w.due_ms), 12, '0') || encode(substr($6::bytea, w.n * 10 + 1, 10), 'hex'))::uuid, j.job_id,
           j.tenant_id, j.version, j.shard, j.priority, CASE WHEN w.due_ms > clock.now_ms THEN 'waiting' ELSE 'queued' END,
           'manual', j.queue, claim_rank(w.due_ms, j.priority), coalesce(($8::timestamptz[])[w.n + 1], w.due_at), w.due_at,
           CASE WHEN w.due_ms <= clock.now_ms THEN clock.now END, ($9::jsonb[])[w.n + 1], $2,
           w.due_at + make_interval(secs => j.start_by_s), j.line_id, j.limit_id
    FROM found j
    CROSS JOIN clock
    CROSS JOIN LATERAL (
        SELECT n, due_ms, timestamptz 'epoch' + due_ms * interval '1 millisecond' AS due_at
        FROM (
            SELECT n, greatest(($7::bigint[])[n + 1], clock.now_ms) AS due_ms
            FROM generate_series(j.first, j.last) AS n
        ) AS numbered
    ) AS w
)
SELECT job_id, line_id, claim_rank(clock.now_ms, priority) AS rank, clock.now_ms FROM found CROSS JOIN clock;

-- name: submit_keyed
-- The same for executions of which some have an idempotency key ($13: by the suffix of the id, the key and the digest in
-- hexadecimal): inserts the keys as well, and no execution whose key is known. Keys are inserted in order, so that no two
-- batches wait for each other. A look-up in a JSON object, because hot connections would join by comparing every pair:
-- 414 ms for a batch of 1,000 instead of 28.
WITH wanted AS MATERIALIZED (
    <<submission_rows>>
), <<new_keys>>
INSERT INTO executions (<<submission_columns>>)
SELECT <<submission_columns>> FROM wanted
WHERE execution_id NOT IN (SELECT execution_id FROM keyed) OR execution_id IN (SELECT execution_id FROM fresh)
RETURNING <<submission_answer>>;

-- name: submit_limited
-- The same for executions of the tenant $14, which has a quota of executions that have not started: none without room.
-- The check is evaluated once, before anything is inserted.
WITH wanted AS MATERIALIZED (
    SELECT * FROM (
        <<submission_rows>>
    ) AS submitted
    WHERE (SELECT has_queue_room($14, cardinality($1::text[])))
), <<new_keys>>
INSERT INTO executions (<<submission_columns>>)
SELECT <<submission_columns>> FROM wanted
WHERE execution_id NOT IN (SELECT execution_id FROM keyed) OR execution_id IN (SELECT execution_id FROM fresh)
RETURNING <<submission_answer>>;

-- name: begin_execution
-- Inserts an execution that a session runs on its own: running, at its first attempt. Nothing if the job is deleted or the
-- session has ended. $4 is the suffix of its id.
INSERT INTO executions (execution_id, job_id, tenant_id, version, shard, priority, state, trigger, queue, rank, fire_at,
                        due_at, queued_at, created_by, line_id, session_id, attempt, started_at)
SELECT (lpad(to_hex(clock.ms), 12, '0') || $4)::uuid, j.job_id, j.tenant_id, j.version, j.shard, j.priority, 'running',
       'manual', j.queue, claim_rank(clock.ms, j.priority), clock.due_at, clock.due_at, clock.now, $5, j.line_id,
       s.session_id, 1, clock.now
FROM (
    SELECT at, floor(extract(epoch FROM at) * 1000)::bigint,
           timestamptz 'epoch' + floor(extract(epoch FROM at) * 1000) * interval '1 millisecond'
    FROM (SELECT db_now()) AS c (at)
) AS clock (now, ms, due_at)
JOIN jobs j ON j.job_id = $1 AND j.tenant_id = $2 AND j.deleted_at IS NULL
JOIN sessions s ON s.session_id = $3 AND s.state = 'active' AND s.lease_expires_at > clock.now
RETURNING execution_id;

-- name: idempotency_key
-- The first request with this key.
SELECT execution_id, digest FROM idempotency_keys WHERE tenant_id = $1 AND job_id = $2 AND key = $3;

-- name: insert_idempotency_key
-- Inserts an idempotency key with its execution; returns the row of the first request with that key.
WITH fresh AS (
    INSERT INTO idempotency_keys (tenant_id, job_id, key, execution_id, digest)
    VALUES ($1, $2, $3, $4, $5) ON CONFLICT (tenant_id, job_id, key) DO NOTHING
    RETURNING execution_id, digest
)
SELECT execution_id, digest, true AS first FROM fresh
UNION ALL
SELECT execution_id, digest, false FROM idempotency_keys WHERE tenant_id = $1 AND job_id = $2 AND key = $3
LIMIT 1;

-- part: step_of
-- The step and run that an execution belongs to, if any. The name of a step that is a workflow is missing here:
-- `step_names` reads it once for each version.
LEFT JOIN LATERAL (
    SELECT rs.run_id AS step_run, o.name AS step_workflow, nullif(rs.item, -1) AS step_item, ws.name AS step_name,
           rs.step AS step_number, r.job_id AS step_job, r.version AS step_version
    FROM run_steps rs JOIN runs r ON r.run_id = rs.run_id JOIN jobs o ON o.job_id = r.job_id
    LEFT JOIN workflow_steps ws ON ws.job_id = r.job_id AND ws.version = r.version AND ws.step = rs.step
    WHERE e.trigger = 'step' AND rs.execution_id = e.execution_id AND rs.tenant_id = e.tenant_id
) AS step ON true

-- name: step_names
-- The step names of a workflow version, in definition order. They never change.
SELECT ARRAY(SELECT json_object_keys(spec::json -> 'steps')) FROM workflow_versions WHERE job_id = $1 AND version = $2;

-- name: execution_by_id
-- One execution, live or final, with the metadata of its job version. The time inside the id prunes partitions of
-- history: nothing ends before it is due, unless it was cancelled early. OFFSET 0: the join with jobs must not offer the
-- index on job_id for finding it.
SELECT e.*, j.name AS job_name, w.name AS worker_name,
       (SELECT v.spec -> 'metadata' FROM job_versions v WHERE v.job_id = e.job_id AND v.version = e.version) AS metadata,
       CASE WHEN e.state = 'running' THEN s.progress -> e.execution_id::text END AS progress,
       step.step_run, step.step_workflow, step.step_item, step.step_name, step.step_number, step.step_job,
       step.step_version
FROM (
    SELECT * FROM all_executions
    WHERE execution_id = $1 AND tenant_id = $2 AND coalesce(finished_at, 'infinity') >= $3 OFFSET 0
) AS e
JOIN jobs j USING (job_id) LEFT JOIN sessions s USING (session_id) LEFT JOIN workers w USING (worker_id)
<<step_of>>;

-- name: executions_by_id
-- Several executions at once, for the live feed.
SELECT e.*, j.name AS job_name, w.name AS worker_name,
       CASE WHEN e.state = 'running' THEN s.progress -> e.execution_id::text END AS progress,
       step.step_run, step.step_workflow, step.step_item, step.step_name, step.step_number, step.step_job,
       step.step_version
FROM (
    SELECT * FROM all_executions
    WHERE execution_id = ANY ($1::uuid[]) AND tenant_id = $2 AND coalesce(finished_at, 'infinity') >= $3 OFFSET 0
) AS e
JOIN jobs j USING (job_id) LEFT JOIN sessions s USING (session_id) LEFT JOIN workers w USING (worker_id)
<<step_of>>;

-- name: list_executions
-- A page of executions, newest fire first, before an id; optionally of some states.
SELECT e.*, j.name AS job_name, w.name AS worker_name,
       CASE WHEN e.state = 'running' THEN s.progress -> e.execution_id::text END AS progress,
       step.step_run, step.step_workflow, step.step_item, step.step_name, step.step_number, step.step_job,
       step.step_version
FROM (
    SELECT * FROM all_executions
    WHERE tenant_id = $1 AND execution_id < $2 AND ($4::text[] IS NULL OR state = ANY ($4))
    ORDER BY execution_id DESC LIMIT $3
) AS e
JOIN jobs j USING (job_id) LEFT JOIN sessions s USING (session_id) LEFT JOIN workers w USING (worker_id)
<<step_of>>
ORDER BY e.execution_id DESC;

-- name: list_executions_of_job
-- The same for one job, from its indexes.
SELECT e.*, j.name AS job_name, w.name AS worker_name,
       CASE WHEN e.state = 'running' THEN s.progress -> e.execution_id::text END AS progress,
       step.step_run, step.step_workflow, step.step_item, step.step_name, step.step_number, step.step_job,
       step.step_version
FROM (
    SELECT * FROM all_executions
    WHERE tenant_id = $1 AND execution_id < $2 AND ($4::text[] IS NULL OR state = ANY ($4)) AND job_id = $5
    ORDER BY execution_id DESC LIMIT $3
) AS e
JOIN jobs j USING (job_id) LEFT JOIN sessions s USING (session_id) LEFT JOIN workers w USING (worker_id)
<<step_of>>
ORDER BY e.execution_id DESC;

-- name: list_running
-- A page of running executions, newest fire first, before an id; optionally of one job. Reads every running execution, at
-- most as many as there are slots, and none that is queued.
SELECT e.*, j.name AS job_name, w.name AS worker_name,
       CASE WHEN e.state = 'running' THEN s.progress -> e.execution_id::text END AS progress,
       step.step_run, step.step_workflow, step.step_item, step.step_name, step.step_number, step.step_job,
       step.step_version
FROM (
    SELECT * FROM all_executions
    WHERE tenant_id = $1 AND execution_id < $2 AND ($4::uuid IS NULL OR job_id = $4) AND finished_at IS NULL
      AND session_id IS NOT NULL
    ORDER BY execution_id DESC LIMIT $3
) AS e
JOIN jobs j USING (job_id) LEFT JOIN sessions s USING (session_id) LEFT JOIN workers w USING (worker_id)
<<step_of>>
ORDER BY e.execution_id DESC;

-- name: list_exceptions
-- A page of executions that ended in some states other than succeeded, newest fire first, before an id. Each state is
-- read separately from the index of unsuccessful executions, so a rare state costs no more than a common one.
SELECT e.*, NULL::timestamptz AS cancel_at, j.name AS job_name, w.name AS worker_name, NULL::jsonb AS progress,
       step.step_run, step.step_workflow, step.step_item, step.step_name, step.step_number, step.step_job,
       step.step_version
FROM (
    SELECT h.* FROM unnest($4::text[]) AS wanted (state)
    CROSS JOIN LATERAL (
        SELECT * FROM history
        WHERE tenant_id = $1 AND state = wanted.state COLLATE "C" AND state <> 'succeeded' AND execution_id < $2
        ORDER BY execution_id DESC LIMIT $3
    ) AS h
    ORDER BY h.execution_id DESC LIMIT $3
) AS e
JOIN jobs j USING (job_id) LEFT JOIN sessions s USING (session_id) LEFT JOIN workers w USING (worker_id)
<<step_of>>
ORDER BY e.execution_id DESC;

-- name: list_exceptions_of_job
-- The same for one job. By its own index: a job may have a million executions, and none in a rare state.
SELECT e.*, NULL::timestamptz AS cancel_at, j.name AS job_name, w.name AS worker_name, NULL::jsonb AS progress,
       step.step_run, step.step_workflow, step.step_item, step.step_name, step.step_number, step.step_job,
       step.step_version
FROM (
    SELECT h.* FROM unnest($4::text[]) AS wanted (state)
    CROSS JOIN LATERAL (
        SELECT * FROM history
        WHERE tenant_id = $1 AND job_id = $5 AND state = wanted.state COLLATE "C" AND state <> 'succeeded' AND execution_id < $2
        ORDER BY execution_id DESC LIMIT $3
    ) AS h
    ORDER BY h.execution_id DESC LIMIT $3
) AS e
JOIN jobs j USING (job_id) LEFT JOIN sessions s USING (session_id) LEFT JOIN workers w USING (worker_id)
<<step_of>>
ORDER BY e.execution_id DESC;

-- name: list_fires
-- A job's fires and the executions that triggers started, with their states, newest first, before an id. Each from an index
-- of its own: a job may have many other executions.
(SELECT e.execution_id, e.version, e.state, e.reason, e.fire_at, e.due_at, e.started_at, e.duration_ms, e.fires,
        NULL::uuid AS trigger_id, NULL::text AS name, NULL::text AS kind, NULL::text AS key, NULL::text AS event
 FROM all_executions e
 WHERE e.tenant_id = $1 AND e.job_id = $2 AND e.execution_id < $3 AND e.trigger = 'fire'
 ORDER BY e.execution_id DESC LIMIT $4)
UNION ALL
(SELECT e.execution_id, e.version, e.state, e.reason, e.fire_at, e.due_at, e.started_at, e.duration_ms, e.fires,
        s.trigger_id, s.name, s.kind, s.key, s.event
 FROM (
     SELECT * FROM trigger_starts WHERE tenant_id = $1 AND job_id = $2 AND execution_id < $3
     ORDER BY execution_id DESC LIMIT $4
 ) AS s
 JOIN all_executions e ON e.execution_id = s.execution_id AND e.job_id = $2 AND e.tenant_id = $1)
ORDER BY execution_id DESC LIMIT $4;

-- name: next_one_time
-- The next fires of a tenant's one-time jobs. Reads only the first $3 waiting executions of each shard, so neither many
-- retries nor another tenant's backlog makes it slow. Fires held back by a pause are left out.
SELECT next.fire_at, next.job_id, j.name, next.queue
FROM (
    SELECT e.fire_at, e.job_id, e.queue
    FROM shards s
    CROSS JOIN LATERAL (
        SELECT job_id, tenant_id, trigger, attempt, fire_at, queue FROM executions
        WHERE state = 'waiting' AND shard = s.shard AND due_at > (SELECT db_now()) AND due_at < 'infinity'
        ORDER BY due_at LIMIT $3
    ) AS e
    WHERE e.tenant_id = $1 AND e.trigger = 'fire' AND e.attempt = 0 AND e.fire_at > (SELECT db_now())
    ORDER BY e.fire_at, e.job_id LIMIT $2
) AS next
JOIN jobs j USING (job_id) ORDER BY next.fire_at, next.job_id;

-- name: execution_prefix
-- Ids that begin with a prefix, given as the range it spans. Two are enough to show that it is ambiguous.
SELECT execution_id FROM all_executions
WHERE tenant_id = $1 AND execution_id BETWEEN $2 AND $3 LIMIT 2;

-- name: latest_requested
-- The latest of the last $3 executions before an id that $4 requested; if there is none, the latest of all. An id
-- begins with the due time, so $2 leaves out those that are due later. The bound keeps it fast for users who requested none.
SELECT execution_id FROM (
    SELECT execution_id, created_by FROM all_executions
    WHERE tenant_id = $1 AND execution_id < $2 ORDER BY execution_id DESC LIMIT $3
) AS recent
ORDER BY created_by IS NOT DISTINCT FROM $4 DESC, execution_id DESC LIMIT 1;

-- name: list_attempts
-- Recorded attempts of an execution: all but a success at the first attempt.
SELECT a.attempt, a.outcome, a.exit_code, a.error, a.started_at, a.ended_at, a.due_at, a.queued_at, a.duration_ms,
       w.name AS worker_name
FROM attempts a LEFT JOIN sessions s USING (session_id) LEFT JOIN workers w USING (worker_id)
WHERE a.execution_id = $1 AND a.tenant_id = $2 ORDER BY a.attempt;

-- name: cancel_pending
-- Cancels an execution that has not started.
WITH gone AS (
    DELETE FROM executions
    WHERE execution_id = $1 AND tenant_id = $2 AND state IN ('waiting', 'blocked', 'queued')
    RETURNING *
), moved AS (
    INSERT INTO history (execution_id, job_id, tenant_id, version, priority, attempt, state, trigger, queue, fire_at,
                         due_at, queued_at, started_at, finished_at, reason, params, created_by, backfill_id)
    SELECT execution_id, job_id, tenant_id, version, priority, attempt, 'cancelled', trigger, queue, fire_at,
           due_at, queued_at, started_at, db_now(), $3, params, created_by, backfill_id
    FROM gone
)
SELECT job_id, chained FROM gone;

-- name: cancel_running
-- Requests the cancellation of a running execution from its session. Settling makes it cancelled.
UPDATE executions SET cancel_at = coalesce(cancel_at, db_now()), cancel_reason = coalesce(cancel_reason, $3)
WHERE execution_id = $1 AND tenant_id = $2 AND state = 'running'
RETURNING session_id;

-- name: has_live
-- Whether any execution has not ended, of all tenants: for tests, each of which has an installation to itself.
SELECT EXISTS (SELECT FROM executions);

-- name: newest_live
-- The newest live execution of a job, backfills excluded.
SELECT execution_id, state FROM executions
WHERE job_id = $1 AND tenant_id = $2 AND backfill_id IS NULL ORDER BY execution_id DESC LIMIT 1;

-- name: cancel_pending_of_job
-- Cancels the pending executions of a job; with $4 only those of that trigger.
WITH gone AS (
    DELETE FROM executions
    WHERE job_id = $1 AND tenant_id = $2 AND state IN ('waiting', 'blocked', 'queued')
      AND ($4::text IS NULL OR trigger = $4)
    RETURNING *
)
INSERT INTO history (execution_id, job_id, tenant_id, version, priority, attempt, state, trigger, queue, fire_at,
                     due_at, queued_at, started_at, finished_at, reason, params, created_by, backfill_id)
SELECT execution_id, job_id, tenant_id, version, priority, attempt, 'cancelled', trigger, queue, fire_at,
       due_at, queued_at, started_at, db_now(), $3, params, created_by, backfill_id
FROM gone
RETURNING execution_id;

-- name: cancel_pending_fires
-- Cancels the pending fires of these jobs.
WITH gone AS (
    DELETE FROM executions
    WHERE job_id = ANY ($1::uuid[]) AND tenant_id = $2 AND state IN ('waiting', 'blocked', 'queued')
      AND trigger = 'fire'
    RETURNING *
)
INSERT INTO history (execution_id, job_id, tenant_id, version, priority, attempt, state, trigger, queue, fire_at,
                     due_at, queued_at, started_at, finished_at, reason, params, created_by, backfill_id)
SELECT execution_id, job_id, tenant_id, version, priority, attempt, 'cancelled', trigger, queue, fire_at,
       due_at, queued_at, started_at, db_now(), $3, params, created_by, backfill_id
FROM gone;

-- name: hold_fires
-- Holds the pending fire of a paused one-time job: it is never due while the pause lasts.
UPDATE executions SET due_at = 'infinity'
WHERE job_id = $1 AND tenant_id = $2 AND state = 'waiting' AND trigger = 'fire' AND attempt = 0;

-- name: free_fires
-- Ends the hold of a pause: the fire is due at its time again. If that has passed, it is skipped, unless catch-up is on
-- ($3) and it was missed less than $4 seconds ago.
WITH passed AS (
    DELETE FROM executions
    WHERE job_id = $1 AND tenant_id = $2 AND state = 'waiting' AND due_at = 'infinity' AND needs_by_at IS NULL
      AND fire_at <= (SELECT db_now())
      AND NOT ($3 AND fire_at >= (SELECT db_now()) - make_interval(secs => $4))
    RETURNING *
), skipped AS (
    INSERT INTO history (execution_id, job_id, tenant_id, version, priority, attempt, state, trigger, queue, fire_at,
                         due_at, finished_at, reason)
    SELECT execution_id, job_id, tenant_id, version, priority, attempt, 'skipped', trigger, queue, fire_at,
           fire_at, db_now(), CASE WHEN $3 THEN 'misfire' ELSE 'paused' END
    FROM passed
), freed AS (
    UPDATE executions SET due_at = fire_at
    WHERE job_id = $1 AND tenant_id = $2 AND state = 'waiting' AND due_at = 'infinity' AND needs_by_at IS NULL
      AND (fire_at > (SELECT db_now()) OR $3 AND fire_at >= (SELECT db_now()) - make_interval(secs => $4))
    RETURNING fire_at
)
SELECT min(fire_at) FROM freed;

-- name: skip_undecided
-- Records as skipped the fires of a job that an edit removed before they were decided; $3 is the last of them, $7 their
-- number.
INSERT INTO history (execution_id, job_id, tenant_id, version, priority, attempt, state, trigger, queue,
                     fire_at, due_at, finished_at, reason, fires)
SELECT execution_id($4, job_id, $5), job_id, tenant_id, $8, priority, 0, 'skipped', 'fire', queue,
       $3, $3, db_now(), $6, $7
FROM jobs WHERE job_id = $1 AND tenant_id = $2
ON CONFLICT DO NOTHING;

-- name: live_counts
-- Running executions of a tenant; and its share of those that wait or are blocked. Reads at most $2 waiting ones of each
-- shard and $3 blocked ones of all tenants: if there are more, the share is one of the estimated number.
WITH waiting AS MATERIALIZED (
    SELECT s.shard, e.tenant_id FROM shards s CROSS JOIN LATERAL (
        SELECT tenant_id FROM executions WHERE state = 'waiting' AND shard = s.shard ORDER BY due_at LIMIT $2
    ) AS e
), blocked AS MATERIALIZED (
    SELECT tenant_id FROM executions WHERE state = 'blocked' ORDER BY job_id, rank LIMIT $3
)
SELECT (SELECT count(*) FROM executions WHERE session_id IS NOT NULL AND tenant_id = $1) AS running,
       (SELECT count(*) FROM waiting WHERE tenant_id = $1) AS waiting, (SELECT count(*) FROM waiting) AS all_waiting,
       (SELECT count(*) FROM blocked WHERE tenant_id = $1) AS blocked, (SELECT count(*) FROM blocked) AS all_blocked,
       EXISTS (SELECT FROM waiting GROUP BY shard HAVING count(*) >= $2) AS more_waiting,
       (SELECT greatest(reltuples, 0) FROM pg_class WHERE oid = 'executions_waiting'::regclass) AS estimated_waiting,
       (SELECT greatest(reltuples, 0) FROM pg_class WHERE oid = 'executions_blocked'::regclass) AS estimated_blocked;

-- name: failed_count
-- Number of executions that failed since an instant; served by a partial index.
SELECT count(*) FROM history
WHERE tenant_id = $1 AND finished_at >= $2 AND state IN ('failed', 'timed_out', 'lost');
