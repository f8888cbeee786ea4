-- Executions of one line differ only in rank, so claiming is walking executions_line from where the last claim ended:
-- ($rank, $id) is the lowest place where something may be queued, and dead entries below it are never walked again.

-- part: live
-- Which of the sessions $1 may be given something, by their place; looked up once, not per slot.
live AS (
    SELECT array_agg(s.session_id ORDER BY f.place) AS sessions
    FROM unnest($1::uuid[]) WITH ORDINALITY AS f (session_id, place)
    LEFT JOIN sessions s
      ON s.session_id = f.session_id AND s.state = 'active' AND s.lease_expires_at > (SELECT db_now())
)

-- part: start_chosen
-- What was chosen becomes running: each at its turn's session.
UPDATE executions e
SET state = 'running', session_id = (SELECT sessions FROM live)[($2)[chosen.turn]], attempt = e.attempt + 1,
    started_at = db_now()
FROM chosen
WHERE e.ctid = chosen.tid AND (SELECT sessions FROM live)[($2)[chosen.turn]] IS NOT NULL
RETURNING e.execution_id, e.job_id, e.version, e.attempt, e.session_id, e.fire_at, e.due_at, e.params, e.line_id, e.rank

-- name: claim
-- Gives the best of one line to free slots. $1: sessions; $2: for each slot, in the order they are filled, which session.
-- Committed before any worker hears of it. Slots of sessions that ended or drain stay empty.
-- The rows are found again by their physical place, which the lock keeps still: 1 µs less than by key. A row that moved
-- while it was being locked is left for the next claim.
-- Sessions are picked out of arrays: joining them was 10 times slower.
WITH <<live>>, chosen AS (
    SELECT locked.place AS tid, row_number() OVER () AS turn
    FROM (
        SELECT ctid AS place FROM executions
        WHERE state = 'queued' AND line_id = $3 AND (rank, execution_id) > ($4, $5) AND tenant_id = $6
          AND (start_by_at IS NULL OR attempt > 0 OR start_by_at > (SELECT db_now()))
        ORDER BY rank, execution_id
        LIMIT cardinality($2::smallint[])
        FOR UPDATE SKIP LOCKED
    ) AS locked
)
<<start_chosen>>;

-- name: claim_keyed
-- As `claim`, for a line whose only limit is the concurrency key $7: holds the key, counts who has its slots, and claims
-- as many as are left. Nobody else counts meanwhile, and the count, a function's, sees what was committed before the key
-- was held. Says with each row how many slots there were; no row: none left, or nothing queued.
WITH held AS MATERIALIZED (
    SELECT limit_id, most FROM limits WHERE limit_id = $7 FOR NO KEY UPDATE
), room AS MATERIALIZED (
    SELECT greatest(0, most - holders_now(limit_id)) AS slots FROM held
), <<live>>, chosen AS (
    SELECT locked.place AS tid, row_number() OVER () AS turn
    FROM (
        SELECT ctid AS place FROM executions
        WHERE state = 'queued' AND line_id = $3 AND (rank, execution_id) > ($4, $5) AND tenant_id = $6
          AND (start_by_at IS NULL OR attempt > 0 OR start_by_at > (SELECT db_now()))
        ORDER BY rank, execution_id
        LIMIT (SELECT least(cardinality($2::smallint[]), slots) FROM room)
        FOR UPDATE SKIP LOCKED
    ) AS locked
)
<<start_chosen>>,
          (SELECT slots FROM room) AS slots;

-- name: peek
-- The best of several lines, for matching; locks nothing. Arrays: line, lowest place (rank, id), how many at most.
SELECT l.line_id, c.execution_id, c.rank
FROM unnest($1::int[], $2::bigint[], $3::uuid[], $4::int[]) AS l (line_id, rank, execution_id, most)
CROSS JOIN LATERAL (
    SELECT execution_id, rank FROM executions
    WHERE state = 'queued' AND line_id = l.line_id AND (rank, execution_id) > (l.rank, l.execution_id)
      AND (start_by_at IS NULL OR attempt > 0 OR start_by_at > (SELECT db_now()))
    ORDER BY rank, execution_id LIMIT l.most
) AS c;

-- name: jobs_of
-- Which jobs these executions are of, for matching; asked only where something is kept on a worker.
SELECT execution_id, job_id, version FROM executions WHERE execution_id = ANY ($1::uuid[]);

-- name: take
-- Writes matched executions as running. What somebody else took or holds meanwhile is left out, and so is what was
-- matched with a session that ended or drains. $3 is 'queued': as a constant it would have the planner walk the queue.
WITH <<live>>, free AS (
    SELECT e.ctid AS tid, (SELECT sessions FROM live)[w.turn] AS session_id
    FROM unnest($2::uuid[], $4::smallint[]) AS w (execution_id, turn)
    JOIN executions e ON e.execution_id = w.execution_id
    WHERE e.state = $3::text AND (SELECT sessions FROM live)[w.turn] IS NOT NULL
      AND (e.start_by_at IS NULL OR e.attempt > 0 OR e.start_by_at > (SELECT db_now()))
    FOR UPDATE OF e SKIP LOCKED
)
UPDATE executions e
SET state = 'running', session_id = free.session_id, attempt = e.attempt + 1, started_at = db_now()
FROM free
WHERE e.ctid = free.tid
RETURNING e.execution_id, e.job_id, e.version, e.attempt, e.session_id, e.fire_at, e.due_at, e.params, e.line_id, e.rank;

-- name: queued_lines
-- Every line with something in it, and the lowest rank there: the slow poll's question. Leaps from line to line.
WITH RECURSIVE found AS (
    (SELECT line_id, rank FROM executions WHERE state = 'queued' ORDER BY line_id, rank, execution_id LIMIT 1)
    UNION ALL
    SELECT n.* FROM found CROSS JOIN LATERAL (
        SELECT line_id, rank FROM executions WHERE state = 'queued' AND line_id > found.line_id
        ORDER BY line_id, rank, execution_id LIMIT 1
    ) AS n
)
SELECT line_id, rank FROM found LIMIT $1;

-- name: lineless_jobs
-- Jobs with queued executions that an older program wrote, which knows no lines.
SELECT j.job_id, j.tenant_id, v.spec
FROM (
    SELECT DISTINCT job_id FROM (
        SELECT job_id FROM executions WHERE state = 'queued' AND line_id = 0 ORDER BY rank, execution_id LIMIT $1
    ) AS lost
) AS e
JOIN jobs j USING (job_id) JOIN job_versions v ON v.job_id = j.job_id AND v.version = j.version
WHERE j.line_id = 0 ORDER BY j.job_id;

-- name: adopt_jobs
-- Gives jobs that an older program wrote their lines.
UPDATE jobs j SET line_id = w.line_id, limit_id = w.limit_id
FROM unnest($2::uuid[], $3::int[], $4::bigint[]) AS w (job_id, line_id, limit_id)
WHERE j.job_id = w.job_id AND j.tenant_id = $1 AND j.line_id = 0;

-- name: adopt_executions
-- Lets what an older program queued join its job's line, by priority; to it, rank was the due time alone.
WITH lost AS (
    SELECT execution_id, state, job_id FROM executions
    WHERE state = 'queued' AND line_id = 0 ORDER BY rank, execution_id LIMIT $1
    FOR UPDATE SKIP LOCKED
), found AS (
    UPDATE executions e SET line_id = j.line_id, limit_id = j.limit_id, rank = e.rank - e.priority * 900000
    FROM lost JOIN jobs j USING (job_id)
    WHERE e.execution_id = lost.execution_id AND e.state = lost.state AND j.line_id > 0
    RETURNING e.line_id, e.rank
)
SELECT line_id, min(rank) AS rank, count(*) AS n,
       pg_notify('mainspring_queued', line_id || ' ' || min(rank)) FROM found GROUP BY line_id;
