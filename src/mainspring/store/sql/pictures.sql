-- What the pictures of the web UI read. Every statement here is bounded by what is shown, whatever the tables hold.

-- name: steps_of_runs
-- How some steps went in some runs: step and run by number. $2: arrays of runs and of a step each.
SELECT s.run_id, s.step, s.state, s.released_at, s.finished_at, s.execution_id
FROM unnest($2::uuid[], $3::int[]) AS w (run_id, step)
CROSS JOIN LATERAL (
    SELECT * FROM run_steps s WHERE s.run_id = w.run_id AND s.step = w.step AND s.item = -1 AND s.tenant_id = $1 OFFSET 0
) AS s;

-- name: started_executions
-- When executions started, live or ended. $3: none of them ended before, which rules out older partitions.
SELECT execution_id, started_at FROM all_executions
WHERE execution_id = ANY ($2::uuid[]) AND tenant_id = $1 AND started_at IS NOT NULL
  AND coalesce(finished_at, 'infinity') >= $3;
