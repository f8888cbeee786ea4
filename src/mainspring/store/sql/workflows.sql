-- name: insert_steps_job
-- Adds the hidden job whose versions are the definitions of a workflow's steps: never listed, found by name or fired.
INSERT INTO jobs (job_id, tenant_id, name, version, shard, change, active_from, queue, priority, overlap, misfire,
                  misfire_s, misfire_most, deleted_at, created_at, updated_at)
SELECT $1, $2, $3, 0, $4, 0, now.at, 'short', 5, 'allow', 'skip', 0, 1, now.at, now.at, now.at
FROM (SELECT db_now()) AS now (at);

-- name: insert_workflow_version
-- Adds a version of a workflow.
INSERT INTO workflow_versions (job_id, version, tenant_id, spec, steps_id, created_by) VALUES ($1, $2, $3, $4, $5, $6);

-- name: insert_definitions
-- Adds definitions of steps that no earlier version had. Arrays: number, definition, whether it exceeds its queue's bound.
INSERT INTO job_versions (job_id, version, tenant_id, spec, created_by, exceeds)
SELECT $1, d.version, $2, d.spec, $3, d.exceeds
FROM unnest($4::int[], $5::jsonb[], $6::boolean[]) AS d (version, spec, exceeds);

-- name: insert_workflow_steps
-- Adds the steps with a task: their definition, queue, priority and line.
INSERT INTO workflow_steps (job_id, version, step, tenant_id, name, steps_id, definition, shard, queue, priority, line_id,
                            limit_id)
SELECT $1, $2, s.step, $3, s.name, $11, s.definition, $12, s.queue, s.priority, s.line_id, s.limit_id
FROM unnest($4::int[], $5::text[], $6::int[], $7::text[], $8::smallint[], $9::int[], $10::bigint[])
    AS s (step, name, definition, queue, priority, line_id, limit_id);

-- name: definitions_of_steps
-- The definitions of the steps of a version.
SELECT v.version, v.spec FROM workflow_steps s
JOIN job_versions v ON v.job_id = s.steps_id AND v.version = s.definition
WHERE s.job_id = $1 AND s.version = $2 AND s.tenant_id = $3;

-- name: last_definition
-- The highest number of a step's definition.
SELECT coalesce(max(version), 0) FROM job_versions WHERE job_id = $1 AND tenant_id = $2;

-- name: workflow_version
-- The workflow version in effect at a version of its job; edits of the job alone do not create one.
SELECT job_id, version, spec, steps_id, created_at, created_by FROM workflow_versions
WHERE job_id = $1 AND tenant_id = $2 AND version <= $3 ORDER BY version DESC LIMIT 1;

-- name: workflow_versions
-- The versions of a workflow, newest first, before a number.
SELECT job_id, version, spec, steps_id, created_at, created_by FROM workflow_versions
WHERE job_id = $1 AND tenant_id = $2 AND version < $3 ORDER BY version DESC LIMIT $4;

-- name: list_workflows
-- A page of workflows by name, after a name.
SELECT j.job_id, j.name, j.version, j.paused_at, j.created_at, j.updated_at,
       (v.spec -> 'task' ->> 'steps')::int AS steps
FROM jobs j JOIN job_versions v USING (job_id, version)
WHERE j.tenant_id = $1 AND j.deleted_at IS NULL AND j.name > $2
  AND EXISTS (SELECT FROM workflow_versions w WHERE w.job_id = j.job_id)
ORDER BY j.name LIMIT $3;

-- name: workflows_with_step
-- Current workflows that have the named workflow as a step. Reads every workflow: only for deletions.
SELECT j.name FROM workflow_versions w
JOIN jobs j ON j.job_id = w.job_id AND j.tenant_id = $1 AND j.deleted_at IS NULL
WHERE w.tenant_id = $1 AND w.version = (SELECT max(v.version) FROM workflow_versions v WHERE v.job_id = w.job_id)
  AND jsonb_path_exists(w.spec::jsonb, '$.steps.* ? (@.workflow == $name)', jsonb_build_object('name', $2::text))
ORDER BY j.name LIMIT $3;
