-- name: begin_watch
-- Begins or resets the watch of a trigger: the next look is due now. With $3 the place or pattern is another one: files
-- that exist now are those of the first pass.
INSERT INTO trigger_watches AS w (trigger_id, tenant_id)
SELECT t.trigger_id, t.tenant_id FROM triggers t WHERE t.trigger_id = $1 AND t.tenant_id = $2
ON CONFLICT (trigger_id) DO UPDATE SET next_look_at = db_now(), after_path = NULL, pass_from_at = NULL,
    first_pass = w.first_pass OR $3::boolean, since_at = CASE WHEN $3 THEN db_now() ELSE w.since_at END;

-- name: forget_files
-- Deletes the files of a trigger, which watches another place now.
DELETE FROM trigger_files WHERE trigger_id = $1 AND tenant_id = $2;

-- name: due_watches
-- Triggers whose next look is due, the longest overdue first. Those of suspended tenants wait.
SELECT t.*, w.since_at AS watched_since, w.first_pass, w.after_path, w.next_look_at, w.error, n.name AS tenant_name
FROM trigger_watches w JOIN triggers t USING (trigger_id) JOIN tenants n ON n.tenant_id = t.tenant_id
WHERE w.next_look_at <= db_now() AND t.kind = 'files' AND t.paused_at IS NULL
  AND n.suspended_at IS NULL AND n.deleted_at IS NULL
ORDER BY w.next_look_at, w.trigger_id LIMIT $1;

-- name: next_look_s
-- Seconds until the next look of any trigger.
SELECT extract(epoch FROM min(w.next_look_at) - db_now())::float8
FROM trigger_watches w JOIN triggers t USING (trigger_id) JOIN tenants n ON n.tenant_id = t.tenant_id
WHERE t.kind = 'files' AND t.paused_at IS NULL AND n.suspended_at IS NULL AND n.deleted_at IS NULL;

-- name: known_files
-- What is known of some paths.
SELECT path, version, outcome, decided_for, seen_at, last_seen_at FROM trigger_files
WHERE trigger_id = $1 AND tenant_id = $2 AND path = ANY ($3::text[]);

-- name: remembers_too_many
-- Whether a trigger has $3 files already.
SELECT count(*) >= $3 FROM (SELECT FROM trigger_files WHERE trigger_id = $1 AND tenant_id = $2 LIMIT $3) AS n;

-- name: record_files
-- Inserts files that a look has found, or their new versions, unless the trigger was edited since it was read ($6).
INSERT INTO trigger_files AS f (trigger_id, tenant_id, path, version, outcome)
SELECT t.trigger_id, t.tenant_id, n.path, n.version, n.outcome
FROM triggers t CROSS JOIN unnest($3::text[], $4::text[], $5::text[]) AS n (path, version, outcome)
WHERE t.trigger_id = $1 AND t.tenant_id = $2 AND t.version = $6
ORDER BY n.path
ON CONFLICT (trigger_id, path) DO UPDATE SET version = excluded.version, outcome = excluded.outcome, decided_for = NULL,
    seen_at = db_now(), last_seen_at = db_now()
WHERE f.version <> excluded.version;

-- name: renew_files
-- Renews files that still exist, at most once a day each.
UPDATE trigger_files SET last_seen_at = db_now()
WHERE trigger_id = $1 AND tenant_id = $2 AND path = ANY ($3::text[]) AND last_seen_at < db_now() - interval '1 day';

-- name: hold_trigger
-- Keeps a trigger as it is until the end of the transaction, if it still has this version and is not paused. Before the locks
-- of its files: an edit takes them in the same order.
SELECT trigger_id FROM triggers WHERE trigger_id = $1 AND tenant_id = $2 AND version = $3 AND paused_at IS NULL FOR SHARE;

-- name: lock_file
-- Locks a version of a file that is still to be decided, by a trigger of the version $5.
SELECT path FROM trigger_files
WHERE trigger_id = $1 AND tenant_id = $2 AND path = $3 AND version = $4
  AND (outcome IN ('seen', 'paused') OR (outcome IN ('filtered', 'refused') AND decided_for <> $5))
FOR UPDATE;

-- name: decide_file
-- Records what a file led to. The caller has locked it.
UPDATE trigger_files SET outcome = $4, decided_for = $5
WHERE trigger_id = $1 AND tenant_id = $2 AND path = $3 AND outcome NOT IN ('started', 'ignored');

-- name: end_look
-- Records a look: the next one in $4 seconds, after the path $5; a problem ($6) since it first occurred. With $7 a pass over
-- the whole place is complete. Nothing if another process has looked since ($3), or the trigger was edited.
UPDATE trigger_watches w SET next_look_at = db_now() + make_interval(secs => $4), looked_at = db_now(), after_path = $5,
    pass_from_at = CASE WHEN $5::text IS NOT NULL THEN coalesce(w.pass_from_at, $3) END,
    passed_at = CASE WHEN $7 THEN coalesce(w.pass_from_at, $3) ELSE w.passed_at END,
    first_pass = w.first_pass AND NOT $7,
    error = $6, error_at = CASE WHEN $6::text IS NULL THEN NULL WHEN w.error = $6 THEN w.error_at ELSE db_now() END
WHERE w.trigger_id = $1 AND w.tenant_id = $2 AND w.next_look_at = $3
RETURNING w.trigger_id;

-- name: fail_look
-- Records that a place could not be read, since the same problem first occurred; the next look in $4 seconds. Nothing if
-- another process has looked since ($3), or the trigger was edited.
UPDATE trigger_watches w SET next_look_at = db_now() + make_interval(secs => $4), error = $5,
    error_at = CASE WHEN w.error = $5 THEN w.error_at ELSE db_now() END
WHERE w.trigger_id = $1 AND w.tenant_id = $2 AND w.next_look_at = $3
RETURNING w.trigger_id;

-- name: forget_gone_files
-- Deletes up to $1 files that are gone for a week. A complete pass renews what it finds, unless that was renewed a day
-- before; so what an older pass found last is gone. While no pass is complete, nothing is deleted.
DELETE FROM trigger_files f USING (
    SELECT o.trigger_id, o.path FROM trigger_files o JOIN trigger_watches w USING (trigger_id)
    WHERE o.last_seen_at < (SELECT db_now()) - interval '8 days' AND o.last_seen_at < w.passed_at - interval '8 days'
    LIMIT $1
) AS gone
WHERE f.trigger_id = gone.trigger_id AND f.path = gone.path;
