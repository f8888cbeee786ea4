-- Triggers of kind `topic`: how far each has read, and its lag. The positions decide which message starts something.

-- name: topic_triggers
-- Active triggers of all tenants that read topics. Those of suspended tenants wait.
SELECT t.*, n.name AS tenant_name FROM triggers t JOIN tenants n USING (tenant_id)
WHERE t.kind = 'topic' AND t.paused_at IS NULL AND n.suspended_at IS NULL AND n.deleted_at IS NULL
ORDER BY t.trigger_id LIMIT $1;

-- name: topic_position
-- The next offset of a partition that a trigger has not decided.
SELECT next_offset FROM trigger_positions WHERE trigger_id = $1 AND tenant_id = $2 AND topic_key = $3 AND part = $4;

-- name: move_position
-- Moves a position from $5 to $6; nothing if another process has moved it meanwhile. Null: the first messages.
INSERT INTO trigger_positions AS p (trigger_id, tenant_id, topic_key, part, next_offset)
SELECT $1, $2, $3, $4, $6 WHERE $5::bigint IS NULL OR EXISTS (
    SELECT FROM trigger_positions WHERE trigger_id = $1 AND topic_key = $3 AND part = $4)
ON CONFLICT (trigger_id, topic_key, part) DO UPDATE SET next_offset = excluded.next_offset, moved_at = db_now()
WHERE p.next_offset = $5
RETURNING next_offset;

-- name: topic_read
-- Records that a trigger reads its topic ($3: null), or why it does not, and its lag, if that is known.
UPDATE trigger_watches w SET looked_at = CASE WHEN $3::text IS NULL THEN db_now() ELSE w.looked_at END,
    error = $3, error_at = CASE WHEN $3::text IS NULL THEN NULL WHEN w.error = $3 THEN w.error_at ELSE db_now() END,
    lag = coalesce($4, w.lag)
WHERE w.trigger_id = $1 AND w.tenant_id = $2;

-- name: topic_lags
-- Messages that wait for triggers of a tenant, by the queue of the job that they start: in executions.
SELECT coalesce(l.queue, 'short') AS queue,
       sum(ceil(w.lag / greatest(1, coalesce((t.spec -> 'source' ->> 'batch')::int, 1))::float8))::bigint AS waiting
FROM triggers t JOIN trigger_watches w USING (trigger_id)
JOIN jobs j ON j.tenant_id = t.tenant_id AND j.name = t.job AND j.deleted_at IS NULL
LEFT JOIN lines l ON l.line_id = j.line_id
WHERE t.tenant_id = $1 AND t.kind = 'topic' AND t.paused_at IS NULL AND w.lag > 0
GROUP BY 1;

-- name: forget_positions
-- Deletes up to $1 positions of topics that were created again a month ago or longer.
DELETE FROM trigger_positions p USING (
    SELECT o.trigger_id, o.topic_key, o.part FROM trigger_positions o
    WHERE o.moved_at < db_now() - interval '30 days' AND EXISTS (
        SELECT FROM trigger_positions n
        WHERE n.trigger_id = o.trigger_id AND n.topic_key <> o.topic_key AND n.moved_at > o.moved_at)
    LIMIT $1
) AS old
WHERE p.trigger_id = old.trigger_id AND p.topic_key = old.topic_key AND p.part = old.part;
