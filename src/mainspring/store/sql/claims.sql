-- Executions of one line differ only in rank, so a claim scans the index executions_line from where the last one ended:
-- ($rank, $id) is the lowest position that may be queued, and dead index entries below it are never scanned again.

-- part: nonempty_lines
-- Every line with a queued execution, and its lowest rank. A loose index scan: one probe per line.
found AS (
    (SELECT line_id, rank FROM executions WHERE state = 'queued' ORDER BY line_id, rank, execution_id LIMIT 1)
    UNION ALL
    SELECT n.* FROM found CROSS JOIN LATERAL (
        SELECT line_id, rank FROM executions WHERE state = 'queued' AND line_id > found.line_id
        ORDER BY line_id, rank, execution_id LIMIT 1
    ) AS n
)

-- part: live
-- The sessions $1 by index, NULL where one can't take work; looked up once, not per slot.
live AS (
    SELECT array_agg(s.session_id ORDER BY f.n) AS sessions
    FROM unnest($1::uuid[]) WITH ORDINALITY AS f (session_id, n)
    LEFT JOIN sessions s
      ON s.session_id = f.session_id AND s.state = 'active' AND s.lease_expires_at > (SELECT db_now())
)

-- part: start_chosen
-- Sets the chosen rows to running, each for the session of its slot.
UPDATE executions e
SET state = 'running', session_id = (SELECT sessions FROM live)[($2)[chosen.slot]], attempt = e.attempt + 1,
    started_at = db_now()
FROM chosen
WHERE e.ctid = chosen.tid AND (SELECT sessions FROM live)[($2)[chosen.slot]] IS NOT NULL
RETURNING e.execution_id, e.job_id, e.version, e.attempt, e.session_id, e.fire_at, e.due_at, e.params, e.line_id, e.rank

-- name: claim
-- Claims the first executions of one line for free slots. $1: sessions; $2: for each slot, in the order they are
-- filled, the index of its session. Commits before any worker learns of it. Slots of ended or draining sessions stay
-- empty. Rows are updated by ctid, which the lock keeps stable: 1 µs less per row than by key. A row that moved while it
-- was being locked is left for the next claim. Sessions come from an array: a join was 10 times slower. Nothing of a
-- suspended tenant starts, whatever the caches of dispatchers hold.
WITH <<live>>, chosen AS (
    SELECT locked.tid, row_number() OVER () AS slot
    FROM (
        SELECT ctid AS tid FROM executions
        WHERE state = 'queued' AND line_id = $3 AND (rank, execution_id) > ($4, $5) AND tenant_id = $6
          AND (start_by_at IS NULL OR attempt > 0 OR start_by_at > (SELECT db_now()))
          AND NOT EXISTS (SELECT FROM tenants WHERE tenant_id = $6 AND suspended_at IS NOT NULL)
        ORDER BY rank, execution_id
        LIMIT cardinality($2::smallint[])
        FOR UPDATE SKIP LOCKED
    ) AS locked
)
<<start_chosen>>;

-- name: claim_keyed
-- As `claim`, for a line whose only limit is the concurrency key $7: locks the key, counts its holders, and claims as
-- many executions as slots are left. The lock serializes counting; the count runs in a function, so its snapshot is
-- younger than the lock. Each row has the number of slots that were left; no row: none left, or nothing queued.
WITH locked_key AS MATERIALIZED (
    SELECT limit_id, most FROM limits WHERE limit_id = $7 FOR NO KEY UPDATE
), free AS MATERIALIZED (
    SELECT greatest(0, most - holders_now(limit_id)) AS slots FROM locked_key
), <<live>>, chosen AS (
    SELECT locked.tid, row_number() OVER () AS slot
    FROM (
        SELECT ctid AS tid FROM executions
        WHERE state = 'queued' AND line_id = $3 AND (rank, execution_id) > ($4, $5) AND tenant_id = $6
          AND (start_by_at IS NULL OR attempt > 0 OR start_by_at > (SELECT db_now()))
          AND NOT EXISTS (SELECT FROM tenants WHERE tenant_id = $6 AND suspended_at IS NOT NULL)
        ORDER BY rank, execution_id
        LIMIT (SELECT least(cardinality($2::smallint[]), slots) FROM free)
        FOR UPDATE SKIP LOCKED
    ) AS locked
)
<<start_chosen>>,
          (SELECT slots FROM free) AS slots;

-- name: peek
-- The first executions of several lines, for matching; locks nothing. Arrays: line, position (rank, id), limit.
SELECT l.line_id, c.execution_id, c.rank
FROM unnest($1::int[], $2::bigint[], $3::uuid[], $4::int[]) AS l (line_id, rank, execution_id, most)
CROSS JOIN LATERAL (
    SELECT execution_id, rank FROM executions
    WHERE state = 'queued' AND line_id = l.line_id AND (rank, execution_id) > (l.rank, l.execution_id)
      AND (start_by_at IS NULL OR attempt > 0 OR start_by_at > (SELECT db_now()))
    ORDER BY rank, execution_id LIMIT l.most
) AS c;

-- name: jobs_of_executions
-- Job and version of executions, for matching; used only where capacity is reserved on a worker.
SELECT execution_id, job_id, version FROM executions WHERE execution_id = ANY ($1::uuid[]);

-- name: start_matched
-- Sets matched executions to running. Skips those that another dispatcher took or locked meanwhile, and those matched
-- with an ended or draining session. $3 is 'queued': with a constant the planner would scan the queue.
WITH <<live>>, free AS (
    SELECT e.ctid AS tid, (SELECT sessions FROM live)[w.n] AS session_id
    FROM unnest($2::uuid[], $4::smallint[]) AS w (execution_id, n)
    JOIN executions e ON e.execution_id = ANY (ARRAY[w.execution_id])
    WHERE e.state = $3::text AND (SELECT sessions FROM live)[w.n] IS NOT NULL
      AND (e.start_by_at IS NULL OR e.attempt > 0 OR e.start_by_at > (SELECT db_now()))
      AND e.tenant_id <> ALL (ARRAY(SELECT t.tenant_id FROM tenants t WHERE t.suspended_at IS NOT NULL))
    FOR UPDATE OF e SKIP LOCKED
)
UPDATE executions e
SET state = 'running', session_id = free.session_id, attempt = e.attempt + 1, started_at = db_now()
FROM free
WHERE e.ctid = free.tid
RETURNING e.execution_id, e.job_id, e.version, e.attempt, e.session_id, e.fire_at, e.due_at, e.params, e.line_id, e.rank;

-- name: undelivered
-- Running executions of a session that are not among those that its worker holds, in the form of a claim.
SELECT execution_id, job_id, version, attempt, session_id, fire_at, due_at, params, line_id, rank
FROM executions WHERE session_id = $1 AND state = 'running' AND execution_id <> ALL ($2::uuid[])
ORDER BY rank, execution_id;

-- name: queued_lines
-- Every non-empty line with its lowest rank, for the slow poll.
WITH RECURSIVE <<nonempty_lines>>
SELECT line_id, rank FROM found LIMIT $1;

-- name: jobs_without_line
-- Jobs with queued executions written by an older version, which has no lines.
SELECT j.job_id, j.tenant_id, v.spec
FROM (
    SELECT DISTINCT job_id FROM (
        SELECT job_id FROM executions WHERE state = 'queued' AND line_id = 0 ORDER BY rank, execution_id LIMIT $1
    ) AS unassigned
) AS e
JOIN jobs j USING (job_id) JOIN job_versions v ON v.job_id = j.job_id AND v.version = j.version
WHERE j.line_id = 0 ORDER BY j.job_id;

-- name: assign_job_lines
-- Assigns lines to jobs written by an older version.
UPDATE jobs j SET line_id = w.line_id, limit_id = w.limit_id
FROM unnest($2::uuid[], $3::int[], $4::bigint[]) AS w (job_id, line_id, limit_id)
WHERE j.job_id = w.job_id AND j.tenant_id = $1 AND j.line_id = 0;

-- name: assign_execution_lines
-- Moves executions queued by an older version into their job's line, and adds the priority to their rank, which there is
-- only the due time.
WITH unassigned AS (
    SELECT execution_id, state, job_id FROM executions
    WHERE state = 'queued' AND line_id = 0 ORDER BY rank, execution_id LIMIT $1
    FOR UPDATE SKIP LOCKED
), found AS (
    UPDATE executions e SET line_id = j.line_id, limit_id = j.limit_id, rank = claim_rank(e.rank, e.priority)
    FROM unassigned JOIN jobs j USING (job_id)
    WHERE e.execution_id = ANY (ARRAY[unassigned.execution_id]) AND e.state = unassigned.state AND j.line_id > 0
    RETURNING e.line_id, e.rank
)
SELECT line_id, min(rank) AS rank, count(*) AS n FROM found GROUP BY line_id;
