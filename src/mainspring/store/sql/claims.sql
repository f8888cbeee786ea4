-- name: claim
-- Gives queued executions to free slots: highest priority first, then rank. One array entry per free slot.
-- Committed before any worker hears of it. Sessions that ended or drain get nothing.
-- Slots are picked out of an array by place: joining them was 10 times slower (a nested loop over 500 x 500).
-- `e.state = placed.state` instead of a constant: a plan made while the table is empty would otherwise find each row
-- by walking the whole partial index (measured: 870 µs an execution instead of 20).
WITH slots AS (
    SELECT array_agg(f.session_id ORDER BY f.place) AS sessions, count(*) AS n
    FROM unnest($1::uuid[]) WITH ORDINALITY AS f (session_id, place)
    JOIN sessions s ON s.session_id = f.session_id AND s.state = 'active' AND s.lease_expires_at > (SELECT db_now())
), candidates AS (
    SELECT c.* FROM unnest($2::text[]) AS q (queue)
    CROSS JOIN LATERAL (
        SELECT execution_id, state, priority, rank FROM executions
        WHERE state = 'queued' AND queue = q.queue COLLATE "C" AND tenant_id = $3
          AND (start_by_at IS NULL OR attempt > 0 OR start_by_at > (SELECT db_now()))
        ORDER BY priority DESC, rank, execution_id
        LIMIT (SELECT n FROM slots)
        FOR UPDATE SKIP LOCKED
    ) AS c
), placed AS (
    SELECT execution_id, state, row_number() OVER (ORDER BY priority DESC, rank, execution_id) AS place
    FROM candidates LIMIT (SELECT n FROM slots)
)
UPDATE executions e
SET state = 'running', session_id = (SELECT sessions FROM slots)[placed.place], attempt = e.attempt + 1,
    started_at = db_now()
FROM placed
WHERE e.execution_id = placed.execution_id AND e.state = placed.state
RETURNING e.execution_id, e.job_id, e.version, e.attempt, e.session_id, e.fire_at, e.due_at, e.params;

-- name: queued_queues
-- Which of these queues have anything to claim: the slow poll's question.
SELECT q.queue FROM unnest($1::text[]) AS q (queue)
WHERE EXISTS (SELECT FROM executions WHERE state = 'queued' AND queue = q.queue COLLATE "C");
