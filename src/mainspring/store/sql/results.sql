-- Every statement in this file finds its rows by primary key and checks session, attempt and state on the row it changes.
-- `IS NOT DISTINCT FROM` keeps the planner from walking the index on session_id instead: with settled rows not yet
-- vacuumed that index is mostly dead entries (measured: 290 µs an execution instead of 20).
--
-- Rows that a list of ids names are joined by `= ANY (ARRAY[id])`, here and in other files. With `=`, a plan made while
-- `executions` was empty scans the whole index once and compares each row with each id. PostgreSQL keeps that plan while
-- the table fills (measured: 14 s for one batch of 1,000 with 100,000 queued). `ANY` cannot be a merge condition, so a
-- scan of the index without a key is not even considered.

-- part: lasted
-- The duration that the worker has measured; of an attempt without a report, the time until it was declared lost.
coalesce(r.duration_ms, least(2147483647, extract(epoch FROM greatest(e.started_at, db_now()) - e.started_at) * 1000)::int)

-- part: move_succeeded
-- Moves rows whose session and attempt are current from executions to history. A null array stands for attempt 1,
-- session $6, or no result, for all rows.
WITH r AS (
    SELECT execution_id, coalesce(attempt, 1::smallint) AS attempt, coalesce(session_id, $6::uuid) AS session_id,
           duration_ms, result
    FROM unnest($1::uuid[], $2::smallint[], $3::uuid[], $4::int[], $5::jsonb[])
        AS r (execution_id, attempt, session_id, duration_ms, result)
), done AS (
    DELETE FROM executions e USING r
    WHERE e.execution_id = ANY (ARRAY[r.execution_id]) AND e.attempt = r.attempt
      AND e.session_id IS NOT DISTINCT FROM r.session_id AND e.state = 'running'
    RETURNING e.*, r.duration_ms, r.result
), again AS (
    INSERT INTO attempts (execution_id, attempt, tenant_id, session_id, outcome, exit_code, started_at, ended_at,
                          due_at, queued_at, duration_ms)
    SELECT execution_id, attempt, tenant_id, session_id, 'succeeded', 0, started_at, greatest(started_at, db_now()),
           due_at, queued_at, duration_ms
    FROM done WHERE attempt > 1
), moved AS (
    INSERT INTO history (execution_id, job_id, tenant_id, version, exit_code, duration_ms, priority, attempt, state,
                         trigger, queue, fire_at, due_at, queued_at, started_at, finished_at, session_id, result, params,
                         created_by, backfill_id)
    SELECT execution_id, job_id, tenant_id, version, 0, duration_ms, priority, attempt, 'succeeded',
           trigger, queue, fire_at, due_at, queued_at, started_at, db_now(), session_id, result, params,
           created_by, backfill_id
    FROM done
)

-- name: settle_succeeded
-- Settles a batch of successes. Executions that are not returned were stale.
<<move_succeeded>>
SELECT execution_id, CASE WHEN chained THEN job_id END AS chained, limit_id FROM done;

-- name: settle_with_output
-- The same, and appends log chunks ($7 to $12) of these and of other running attempts, as `append_logs` does. Returns
-- first the executions, then the bytes by tenant.
<<move_succeeded>>, c AS (
    SELECT * FROM unnest($7::uuid[], $8::uuid[], $9::smallint[], $10::int[], $11::text[], $12::bytea[])
        AS c (session_id, execution_id, attempt, seq, stream, data)
), cut AS (SELECT $13::int[] AS tenants), appended AS (
    INSERT INTO log_chunks (execution_id, attempt, seq, tenant_id, stream, data, started_at)
    <<log_chunks_of_running>>
)
SELECT execution_id, CASE WHEN chained THEN job_id END AS chained, limit_id, NULL::int AS tenant_id,
       NULL::bigint AS bytes, NULL::bigint AS cut
FROM done
UNION ALL
SELECT NULL, NULL, NULL, <<appended_bytes>>;

-- name: settle_steps
-- The same for executions that are steps. Also locks and returns their runs, as `lock_runs` does, without another round
-- trip.
<<move_succeeded>>, held AS MATERIALIZED (
    SELECT r.*, s.execution_id, s.step, s.item
    FROM done
    CROSS JOIN LATERAL (SELECT s.* FROM run_steps s WHERE s.execution_id = done.execution_id OFFSET 0) AS s
    JOIN runs r ON r.run_id = s.run_id
    ORDER BY r.depth DESC, r.run_id FOR UPDATE OF r
)
SELECT done.execution_id, CASE WHEN done.chained THEN done.job_id END AS chained, done.limit_id, held.run_id,
       held.tenant_id, held.job_id, held.version, held.state, held.params, held.fire_at, held.started_at, held.depth,
       held.ends_as, held.step, held.item
FROM done LEFT JOIN held ON held.execution_id = done.execution_id;

-- name: settle_with_successor
-- Settles a step whose only successor needs nothing else: ends the step, counts it at the run and releases the
-- successor, in one statement and its own transaction. $7, $8: a session with a free slot, and the line of its
-- reservation; $9 to $12: the run, both steps, and the successor's params. If an assumption is outdated, raise_outdated
-- rolls all of it back.
<<move_succeeded>>, reserved AS (
    SELECT session_id, $8::int AS line_id FROM sessions
    WHERE session_id = $7::uuid AND state = 'active' AND lease_expires_at > db_now()
), held AS (
    UPDATE runs r SET open_steps = r.open_steps - 1 FROM done
    WHERE r.run_id = $9::uuid AND r.state = 'running' RETURNING r.run_id, done.execution_id, done.result
), finished AS (
    UPDATE run_steps s SET state = 'succeeded', result = CASE WHEN s.keeps THEN held.result END, finished_at = db_now()
    FROM held
    WHERE s.run_id = $9::uuid AND s.step = $10::int AND s.item = -1 AND s.execution_id = held.execution_id
      AND s.finished_at IS NULL
    RETURNING s.run_id
), marked AS (
    UPDATE run_steps s SET state = 'running', unmet = 0, ok = s.ok + 1, released_at = now.at
    FROM finished CROSS JOIN (SELECT db_now()) AS now (at)
    WHERE s.run_id = $9::uuid AND s.step = $11::int AND s.item = -1 AND s.state = 'blocked' AND s.unmet = 1
    RETURNING s.run_id, s.step, s.execution_id, $12::jsonb AS params, now.at AS now, now.at AS due_at
), <<become_executions>>
SELECT fresh.*, CASE WHEN done.chained THEN done.job_id END AS chained, done.limit_id,
       CASE WHEN (SELECT count(*) FROM fresh) = 1 THEN 1 ELSE raise_outdated() END AS released
FROM done LEFT JOIN fresh ON true;

-- name: lock_results
-- First statement of a batch with unsuccessful results: locks the rows whose session and attempt are current.
SELECT e.execution_id, e.attempt, e.session_id, e.job_id, e.version, e.tenant_id, e.failures, e.lost, e.cancel_at,
       e.cancel_reason, v.urgent_job || ' ' || v.urgent_id AS urgent
FROM executions e
JOIN unnest($1::uuid[], $2::smallint[], $3::uuid[]) AS r (execution_id, attempt, session_id)
  ON e.execution_id = ANY (ARRAY[r.execution_id]) AND e.attempt = r.attempt
 AND e.session_id IS NOT DISTINCT FROM r.session_id
LEFT JOIN evictions v ON v.execution_id = r.execution_id AND v.attempt = r.attempt
WHERE e.state = 'running'
ORDER BY r.execution_id FOR UPDATE OF e;

-- name: settle_retries
-- Returns executions to the queue, or lets them wait for the end of a backoff, which begins when the attempt ended. Writes
-- their attempts.
WITH clock AS MATERIALIZED (
    SELECT db_now() AS now
), r AS (
    SELECT * FROM unnest($1::uuid[], $2::smallint[], $3::uuid[], $4::text[], $5::int[], $6::text[], $7::float8[],
                         $8::smallint[], $9::smallint[], $10::int[])
        AS r (execution_id, attempt, session_id, outcome, exit_code, error, delay_s, failures, lost, duration_ms)
), kept AS (
    INSERT INTO attempts (execution_id, attempt, tenant_id, session_id, outcome, exit_code, error, started_at,
                          ended_at, due_at, queued_at, duration_ms)
    SELECT e.execution_id, e.attempt, e.tenant_id, e.session_id, r.outcome, r.exit_code, r.error, e.started_at,
           greatest(e.started_at, (SELECT now FROM clock)), e.due_at, e.queued_at, <<lasted>>
    FROM executions e JOIN r ON e.execution_id = ANY (ARRAY[r.execution_id]) AND e.attempt = r.attempt
     AND e.session_id IS NOT DISTINCT FROM r.session_id
    WHERE e.state = 'running'
)
UPDATE executions e
SET state = CASE WHEN r.delay_s > 0 THEN 'waiting' ELSE 'queued' END,
    due_at = CASE WHEN r.delay_s > 0 THEN (SELECT now FROM clock) + make_interval(secs => r.delay_s) ELSE e.due_at END,
    queued_at = CASE WHEN r.delay_s > 0 THEN NULL ELSE db_now() END, session_id = NULL,
    cancel_at = NULL, cancel_reason = NULL, failures = r.failures, lost = r.lost
FROM r
WHERE e.execution_id = ANY (ARRAY[r.execution_id]) AND e.attempt = r.attempt
  AND e.session_id IS NOT DISTINCT FROM r.session_id AND e.state = 'running'
RETURNING e.execution_id, e.state, e.due_at, e.line_id, e.limit_id, e.rank;

-- name: settle_final
-- Ends executions without another attempt. Writes their last attempts, and a dead letter where leaves_dead_letter is
-- true. A dead letter has copies of the attempts, because retention may delete them.
WITH r AS (
    SELECT * FROM unnest($1::uuid[], $2::smallint[], $3::uuid[], $4::text[], $5::int[], $6::text[], $7::text[],
                         $8::text[], $9::int[], $10::jsonb[], $11::boolean[], $12::text[])
        AS r (execution_id, attempt, session_id, outcome, exit_code, error, state, reason, duration_ms, result,
              leaves_dead_letter, fingerprint)
), done AS (
    DELETE FROM executions e USING r
    WHERE e.execution_id = ANY (ARRAY[r.execution_id]) AND e.attempt = r.attempt
      AND e.session_id IS NOT DISTINCT FROM r.session_id AND e.state = 'running'
    RETURNING e.*, r.outcome, r.exit_code, r.error, r.state AS final_state, r.reason, <<lasted>> AS duration_ms,
              r.result, r.leaves_dead_letter, r.fingerprint
), kept AS (
    INSERT INTO attempts (execution_id, attempt, tenant_id, session_id, outcome, exit_code, error, started_at,
                          ended_at, due_at, queued_at, duration_ms)
    SELECT execution_id, attempt, tenant_id, session_id, outcome, exit_code, error, started_at,
           greatest(started_at, db_now()), due_at, queued_at, duration_ms
    FROM done
), moved AS (
    INSERT INTO history (execution_id, job_id, tenant_id, version, exit_code, duration_ms, priority, attempt, state,
                         trigger, queue, fire_at, due_at, queued_at, started_at, finished_at, session_id, reason, error,
                         result, params, created_by, backfill_id)
    SELECT execution_id, job_id, tenant_id, version, exit_code, duration_ms, priority, attempt, final_state,
           trigger, queue, fire_at, due_at, queued_at, started_at, db_now(), session_id, reason, error,
           result, params, created_by, backfill_id
    FROM done
), dead_letter AS (
    INSERT INTO dead_letters (dead_letter_id, tenant_id, job_id, version, exit_code, ended_as, trigger, queue,
                              fingerprint, fire_at, created_at, reason, error, params, replay_of, attempts)
    SELECT d.execution_id, d.tenant_id, d.job_id, d.version, d.exit_code, d.final_state, d.trigger, d.queue,
           d.fingerprint, d.fire_at, db_now(), d.reason, d.error, d.params,
           CASE WHEN d.trigger = 'replay'
                THEN (SELECT o.dead_letter_id FROM dead_letters o WHERE o.replayed_as = d.execution_id) END,
           coalesce((
               SELECT jsonb_agg(jsonb_build_object(
                   'attempt', a.attempt, 'outcome', a.outcome, 'exit_code', a.exit_code, 'error', left(a.error, 2000),
                   'started_at', a.started_at, 'ended_at', a.ended_at, 'worker', a.name, 'due_at', a.due_at,
                   'queued_at', a.queued_at, 'duration_ms', a.duration_ms) ORDER BY a.attempt)
               FROM (
                   SELECT a.*, w.name
                   FROM attempts a LEFT JOIN sessions s USING (session_id) LEFT JOIN workers w USING (worker_id)
                   WHERE a.execution_id = d.execution_id ORDER BY a.attempt DESC LIMIT 49
               ) AS a
           ), '[]') || jsonb_build_object(
               'attempt', d.attempt, 'outcome', d.outcome, 'exit_code', d.exit_code, 'error', left(d.error, 2000),
               'started_at', d.started_at, 'ended_at', greatest(d.started_at, db_now()), 'worker', w.name,
               'due_at', d.due_at, 'queued_at', d.queued_at, 'duration_ms', d.duration_ms)
    FROM done d LEFT JOIN sessions s USING (session_id) LEFT JOIN workers w USING (worker_id)
    WHERE d.leaves_dead_letter
    ON CONFLICT (dead_letter_id) DO NOTHING
)
SELECT execution_id, CASE WHEN chained THEN job_id END AS chained, limit_id FROM done;
