-- A dead letter is locked before the execution of its replay. Settling locks executions and only inserts dead letters,
-- so the two cannot deadlock. Every change checks the state, and that no other user has claimed the letter.

-- name: count_open
-- Number of open dead letters, without those attached to a run's.
SELECT count(*) FROM dead_letters WHERE tenant_id = $1 AND state = 'open' AND run_id IS NULL;

-- name: dead_letter_by_id
-- One dead letter, with the definition that was executed.
SELECT d.*, j.name AS job_name, v.spec, CASE WHEN d.trigger = 'step' THEN v.spec ->> 'name' END AS step_name
FROM dead_letters d JOIN jobs j USING (job_id) JOIN job_versions v ON v.job_id = d.job_id AND v.version = d.version
WHERE d.dead_letter_id = $1 AND d.tenant_id = $2;

-- name: latest_dead_letter
-- The dead letter of the execution that ended last.
SELECT dead_letter_id FROM dead_letters WHERE tenant_id = $1 ORDER BY created_at DESC, dead_letter_id DESC LIMIT 1;

-- name: dead_letter_prefix
-- Dead letters whose ids begin with a prefix, given as the range it spans. Two are enough to show that it is ambiguous.
SELECT dead_letter_id FROM dead_letters WHERE tenant_id = $1 AND dead_letter_id BETWEEN $2 AND $3 LIMIT 2;

-- name: list_dead_letters
-- A page of dead letters, newest fire first, before an id; optionally of one job, one fingerprint, some states.
SELECT d.*, j.name AS job_name, CASE WHEN d.trigger = 'step' THEN v.spec ->> 'name' END AS step_name
FROM dead_letters d JOIN jobs j USING (job_id) JOIN job_versions v ON v.job_id = d.job_id AND v.version = d.version
WHERE d.tenant_id = $1 AND d.dead_letter_id < $2 AND ($4::uuid[] IS NULL OR d.job_id = ANY ($4))
  AND ($5::text IS NULL OR d.fingerprint = $5) AND ($6::text[] IS NULL OR d.state = ANY ($6))
ORDER BY d.dead_letter_id DESC LIMIT $3;

-- name: group_dead_letters
-- Open dead letters by job and fingerprint, after a group, without those attached to a run's. Walks the index from
-- group to group and counts at most $5 of each, so a million letters of one error cost no more than a thousand.
WITH RECURSIVE groups AS (
    (SELECT job_id, fingerprint, 1 AS n FROM dead_letters
     WHERE tenant_id = $1 AND state = 'open' AND run_id IS NULL AND (job_id, fingerprint) > ($2::uuid, $3::text)
     ORDER BY job_id, fingerprint LIMIT 1)
    UNION ALL
    SELECT next.job_id, next.fingerprint, g.n + 1 FROM groups g
    CROSS JOIN LATERAL (
        SELECT d.job_id, d.fingerprint FROM dead_letters d
        WHERE d.tenant_id = $1 AND d.state = 'open' AND d.run_id IS NULL AND (d.job_id, d.fingerprint) > (g.job_id, g.fingerprint)
        ORDER BY d.job_id, d.fingerprint LIMIT 1
    ) AS next
    WHERE g.n < $4
)
SELECT g.job_id, j.name AS job_name, g.fingerprint, counted.n AS letters, oldest.created_at AS first_at,
       oldest.version AS first_version, newest.created_at AS last_at, newest.dead_letter_id AS sample_id, newest.error,
       newest.reason, newest.ended_as, newest.claimed_by, newest.claimed_until > db_now() AS is_claimed, recent.hours_ago
FROM groups g JOIN jobs j USING (job_id)
CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM (
        SELECT FROM dead_letters d WHERE d.tenant_id = $1 AND d.job_id = g.job_id AND d.fingerprint = g.fingerprint
          AND d.state = 'open' AND d.run_id IS NULL LIMIT $5
    ) AS few
) AS counted
CROSS JOIN LATERAL (
    SELECT d.created_at, d.version FROM dead_letters d WHERE d.tenant_id = $1 AND d.job_id = g.job_id
      AND d.fingerprint = g.fingerprint AND d.state = 'open' AND d.run_id IS NULL ORDER BY d.created_at LIMIT 1
) AS oldest
CROSS JOIN LATERAL (
    SELECT array_agg(floor(extract(epoch FROM db_now() - few.created_at) / 3600)::int) AS hours_ago FROM (
        SELECT d.created_at FROM dead_letters d WHERE d.tenant_id = $1 AND d.job_id = g.job_id
          AND d.fingerprint = g.fingerprint AND d.state = 'open' AND d.run_id IS NULL
          AND d.created_at > db_now() - interval '24 hours' ORDER BY d.created_at DESC LIMIT 100
    ) AS few
) AS recent
CROSS JOIN LATERAL (
    SELECT d.created_at, d.dead_letter_id, d.error, d.reason, d.ended_as, d.claimed_by, d.claimed_until
    FROM dead_letters d WHERE d.tenant_id = $1
      AND d.job_id = g.job_id AND d.fingerprint = g.fingerprint AND d.state = 'open' AND d.run_id IS NULL ORDER BY d.created_at DESC LIMIT 1
) AS newest
ORDER BY g.job_id, g.fingerprint;

-- name: claim_dead_letters
-- Claims open dead letters for one user, oldest first, for $7 seconds; skips those that others have claimed. A user's
-- own claim is renewed. Null in $3 to $5: any.
-- The CTE is evaluated once; a subquery could be evaluated for each row of `d`, and lock more than $6.
WITH free AS MATERIALIZED (
    SELECT dead_letter_id FROM dead_letters
    WHERE tenant_id = $1 AND state = 'open' AND (claimed_until IS NULL OR claimed_until <= db_now() OR claimed_by = $2)
      AND ($3::uuid[] IS NULL AND run_id IS NULL OR dead_letter_id = ANY ($3)) AND ($4::uuid[] IS NULL OR job_id = ANY ($4))
      AND ($5::text IS NULL OR fingerprint = $5)
    ORDER BY created_at, dead_letter_id LIMIT $6 FOR UPDATE SKIP LOCKED
)
UPDATE dead_letters d SET claimed_by = $2, claimed_until = db_now() + make_interval(secs => $7)
FROM free WHERE d.dead_letter_id = free.dead_letter_id
RETURNING d.dead_letter_id;

-- name: lock_dead_letters
-- Locks open dead letters that no other user has claimed, in key order.
SELECT d.dead_letter_id, d.job_id, d.fire_at, coalesce(d.new_params, d.params) AS params, d.replays, j.name AS job_name
FROM dead_letters d JOIN jobs j USING (job_id)
WHERE d.tenant_id = $1 AND d.state = 'open'
  AND (d.claimed_until IS NULL OR d.claimed_until <= db_now() OR d.claimed_by = $2)
  AND ($3::uuid[] IS NULL OR d.dead_letter_id = ANY ($3)) AND ($4::uuid[] IS NULL OR d.job_id = ANY ($4))
  AND ($5::text IS NULL OR d.fingerprint = $5)
ORDER BY d.dead_letter_id LIMIT $6 FOR UPDATE OF d;

-- name: edit_dead_letter
-- Writes a note, or parameters for the replay, unless another user has claimed the letter.
UPDATE dead_letters SET note = CASE WHEN $5 THEN $4 ELSE note END, noted_by = CASE WHEN $5 THEN $3 ELSE noted_by END,
    new_params = CASE WHEN $7 THEN $6 ELSE new_params END
WHERE dead_letter_id = $1 AND tenant_id = $2 AND (NOT $7 OR state = 'open')
  AND (claimed_until IS NULL OR claimed_until <= db_now() OR claimed_by = $3)
RETURNING dead_letter_id;

-- name: release_dead_letter
-- Ends a user's own claim before it expires.
UPDATE dead_letters SET claimed_by = NULL, claimed_until = NULL
WHERE dead_letter_id = $1 AND tenant_id = $2 AND claimed_by = $3
RETURNING dead_letter_id;

-- name: dismiss_dead_letters
-- Dismisses locked dead letters.
UPDATE dead_letters SET state = 'dismissed', closed_at = db_now(), closed_by = $3, close_reason = $4,
    claimed_by = NULL, claimed_until = NULL
WHERE tenant_id = $1 AND dead_letter_id = ANY ($2::uuid[]) AND state = 'open'
RETURNING dead_letter_id;

-- name: attach_step_letters
-- Attaches the dead letters of steps to the dead letter of their run, which ended just now. They are handled with it.
UPDATE dead_letters d SET run_id = s.run_id
FROM run_steps s
WHERE s.run_id = ANY ($1::uuid[]) AND s.state IN ('failed', 'timed_out', 'lost') AND s.execution_id IS NOT NULL
  AND d.dead_letter_id = s.execution_id AND d.state = 'open';

-- name: close_attached
-- Closes dead letters attached to these runs, and to runs among their steps, with the same decision.
WITH RECURSIVE tied AS (
    SELECT dead_letter_id FROM dead_letters WHERE run_id = ANY ($2::uuid[]) AND tenant_id = $1
    UNION
    SELECT d.dead_letter_id FROM tied t JOIN dead_letters d ON d.run_id = t.dead_letter_id AND d.tenant_id = $1
)
UPDATE dead_letters d SET state = $3, closed_at = db_now(), closed_by = $4, close_reason = $5, claimed_by = NULL,
    claimed_until = NULL
FROM tied WHERE d.dead_letter_id = tied.dead_letter_id AND d.state = 'open'
RETURNING d.dead_letter_id;

-- name: resolve_step_letters
-- Resolves the dead letters of a step that a user has skipped or completed, of its items, and of the runs inside it. $4:
-- the run that continues instead.
WITH RECURSIVE tied AS (
    SELECT s.execution_id AS dead_letter_id FROM run_steps s
    WHERE s.run_id = $2 AND s.step = $3 AND s.tenant_id = $1 AND s.execution_id IS NOT NULL
    UNION
    SELECT d.dead_letter_id FROM tied t JOIN dead_letters d ON d.run_id = t.dead_letter_id AND d.tenant_id = $1
)
UPDATE dead_letters d SET state = 'resolved', resolved_by = $4, closed_at = db_now(), closed_by = $5, close_reason = $6,
    claimed_by = NULL, claimed_until = NULL, replay_after = NULL, replay_gap_s = NULL
FROM tied WHERE d.dead_letter_id = tied.dead_letter_id AND d.tenant_id = $1 AND d.state IN ('open', 'held')
RETURNING d.dead_letter_id;

-- name: mark_replayed
-- Marks locked dead letters as replaying, with their new executions.
UPDATE dead_letters d SET state = 'replaying', replayed_as = w.execution_id, replayed_at = db_now(),
    replayed_by = $4, replays = replays + 1, replay_after = NULL, replay_gap_s = NULL,
    claimed_by = NULL, claimed_until = NULL
FROM unnest($2::uuid[], $3::uuid[]) AS w (dead_letter_id, execution_id)
WHERE d.tenant_id = $1 AND d.dead_letter_id = w.dead_letter_id AND d.state IN ('open', 'held')
RETURNING d.dead_letter_id;

-- name: hold_for_canary
-- Holds locked dead letters until the replay of one other has succeeded.
UPDATE dead_letters SET state = 'held', replay_after = $3, replay_gap_s = $4, replayed_by = $5,
    claimed_by = NULL, claimed_until = NULL
WHERE tenant_id = $1 AND dead_letter_id = ANY ($2::uuid[]) AND state = 'open';

-- name: close_replayed
-- Closes dead letters whose replay has ended: a success resolves it, a failure supersedes it by its own dead letter,
-- and a cancelled replay reopens it.
WITH ended AS (
    SELECT d.dead_letter_id, h.state FROM dead_letters d
    CROSS JOIN LATERAL (
        SELECT h.state FROM history h WHERE h.execution_id = d.replayed_as AND h.finished_at >= d.replayed_at
    ) AS h
    WHERE d.state = 'replaying' ORDER BY d.dead_letter_id LIMIT $1 FOR UPDATE OF d SKIP LOCKED
)
UPDATE dead_letters d
SET state = CASE WHEN e.state = 'succeeded' THEN 'resolved'
                 WHEN e.state IN ('failed', 'timed_out', 'lost') THEN 'superseded' ELSE 'open' END,
    resolved_by = CASE WHEN e.state = 'succeeded' THEN d.replayed_as END,
    closed_at = CASE WHEN e.state IN ('succeeded', 'failed', 'timed_out', 'lost') THEN db_now() END,
    closed_by = CASE WHEN e.state IN ('succeeded', 'failed', 'timed_out', 'lost') THEN d.replayed_by END
FROM ended e WHERE d.dead_letter_id = e.dead_letter_id AND d.state = 'replaying'
RETURNING d.dead_letter_id, d.state;

-- name: resolve_before
-- Resolves superseded dead letters with the letter that their replay left.
UPDATE dead_letters d SET state = 'resolved', resolved_by = n.resolved_by
FROM dead_letters n
WHERE n.dead_letter_id = ANY ($1::uuid[]) AND n.state = 'resolved' AND d.replayed_as = n.dead_letter_id
  AND d.state = 'superseded'
RETURNING d.dead_letter_id;

-- name: replays_under_way
-- Whether a replay is running, or held for a canary.
SELECT EXISTS (SELECT FROM dead_letters WHERE state = 'replaying') OR EXISTS (SELECT FROM dead_letters WHERE state = 'held');

-- name: decided_canaries
-- Canaries whose replay has ended, or that no longer exist (state null), while others are held for them.
SELECT DISTINCT h.replay_after, h.tenant_id, c.state
FROM dead_letters h LEFT JOIN dead_letters c ON c.dead_letter_id = h.replay_after
WHERE h.state = 'held' AND c.state IS DISTINCT FROM 'replaying' LIMIT $1;

-- name: lock_held
-- Locks the dead letters held for one canary, in key order.
SELECT dead_letter_id, job_id, fire_at, coalesce(new_params, params) AS params, replays, replay_gap_s, replayed_by
FROM dead_letters WHERE tenant_id = $1 AND replay_after = $2 AND state = 'held' ORDER BY dead_letter_id FOR UPDATE;

-- name: reopen_held
-- Reopens held dead letters whose canary did not succeed.
UPDATE dead_letters SET state = 'open', replay_after = NULL, replay_gap_s = NULL
WHERE tenant_id = $1 AND dead_letter_id = ANY ($2::uuid[]) AND state = 'held';

-- name: forget_dead_letters
-- Deletes dead letters older than $1 seconds.
DELETE FROM dead_letters WHERE created_at < db_now() - make_interval(secs => $1);
