-- name: holds_attempt
-- Whether a session runs this attempt, and may store artifacts for it.
SELECT EXISTS (
    SELECT FROM executions WHERE execution_id = $1 AND attempt = $2 AND session_id = $3 AND state = 'running'
);

-- name: insert_artifact
-- Inserts an artifact of a running attempt, or replaces one of that name, whose key is returned. Accepted only from the
-- session that runs the attempt, up to $10 artifacts and $11 bytes per execution.
WITH holder AS (
    SELECT execution_id, tenant_id, attempt FROM executions
    WHERE execution_id = $1 AND attempt = $2 AND session_id = $3 AND state = 'running'
    FOR UPDATE
), others AS (
    SELECT count(*) AS files, coalesce(sum(a.bytes), 0)::bigint AS bytes
    FROM artifacts a JOIN holder USING (execution_id) WHERE a.name <> $4
), earlier AS (
    SELECT a.key FROM artifacts a JOIN holder USING (execution_id) WHERE a.name = $4
), written AS (
    INSERT INTO artifacts (execution_id, name, tenant_id, attempt, key, bytes, sha256, content_type, expires_at)
    SELECT execution_id, $4, tenant_id, attempt, $5, $6::bigint, $7, $8, db_now() + make_interval(secs => $9::float8)
    FROM holder, others WHERE others.files < $10 AND others.bytes + $6::bigint <= $11
    ON CONFLICT (execution_id, name) DO UPDATE
    SET attempt = EXCLUDED.attempt, key = EXCLUDED.key, bytes = EXCLUDED.bytes, sha256 = EXCLUDED.sha256,
        content_type = EXCLUDED.content_type, created_at = db_now(), expires_at = EXCLUDED.expires_at
    RETURNING key
)
SELECT EXISTS (SELECT FROM holder) AS held, EXISTS (SELECT FROM written) AS written, (SELECT key FROM earlier) AS earlier;

-- name: list_artifacts
-- The artifacts of an execution, by name.
SELECT name, attempt, key, bytes, sha256, content_type, created_at, expires_at FROM artifacts
WHERE execution_id = $1 AND tenant_id = $2 AND expires_at > db_now() ORDER BY name;

-- name: find_artifact_in
-- An artifact of another execution, for the session that runs this attempt and within its tenant: of one execution ($5),
-- of an earlier step of its run ($6; of a repeated one the last item), or of the $8 newest successes of a job ($7).
WITH holder AS (
    SELECT execution_id, tenant_id FROM executions
    WHERE execution_id = $1 AND attempt = $2 AND session_id = $3 AND state = 'running'
), source AS (
    SELECT $5::uuid AS execution_id WHERE $5::uuid IS NOT NULL
    UNION ALL
    (SELECT s.execution_id FROM holder h JOIN run_steps own USING (execution_id)
     JOIN run_steps s ON s.run_id = own.run_id AND s.step = $6::int
     WHERE s.execution_id IS NOT NULL ORDER BY s.item DESC LIMIT 1)
    UNION ALL
    (SELECT x.execution_id FROM holder h JOIN jobs j ON j.tenant_id = h.tenant_id AND j.name = $7 AND j.deleted_at IS NULL
     JOIN history x ON x.job_id = j.job_id AND x.tenant_id = h.tenant_id AND x.state = 'succeeded'
     ORDER BY x.execution_id DESC LIMIT $8)
)
SELECT h.tenant_id, found.* FROM holder h LEFT JOIN LATERAL (
    SELECT a.name, a.attempt, a.key, a.bytes, a.sha256, a.content_type, a.created_at, a.expires_at
    FROM artifacts a JOIN source USING (execution_id)
    WHERE a.tenant_id = h.tenant_id AND a.name = $4 AND a.expires_at > db_now()
    ORDER BY a.execution_id DESC LIMIT 1
) AS found ON true;

-- name: expired_artifacts
-- Expired artifacts.
SELECT execution_id, name, key FROM artifacts WHERE expires_at <= db_now() ORDER BY expires_at LIMIT $1;

-- name: delete_artifacts
-- Deletes rows of removed artifacts; one that was replaced meanwhile has another key, and stays.
DELETE FROM artifacts WHERE key = ANY ($1::uuid[]);
