-- name: insert_trigger
-- Inserts a trigger, unless the tenant has too many ($12), or too many that watch files ($14)
-- or read topics ($15). The caller has locked the
-- tenant.
INSERT INTO triggers (trigger_id, tenant_id, name, kind, job, after_job, outcomes, spec, secrets, key_id, envelope,
    created_by)
SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $13
WHERE (SELECT count(*) FROM triggers WHERE tenant_id = $2) < $12
  AND ($4 <> 'files' OR (SELECT count(*) FROM triggers WHERE tenant_id = $2 AND kind = 'files') < $14)
  AND ($4 <> 'topic' OR (SELECT count(*) FROM triggers WHERE tenant_id = $2 AND kind = 'topic') < $15)
RETURNING trigger_id;

-- part: trigger_columns
-- A trigger with its latest delivery and, of a trigger that watches files, its last look.
t.*, d.delivery_id, d.key, d.event, d.outcome, d.reason, d.execution_id, d.params, d.repeats, d.received_at,
w.looked_at, w.next_look_at, w.error AS watch_error, w.error_at AS watch_error_at, w.lag
FROM triggers t LEFT JOIN trigger_watches w ON w.trigger_id = t.trigger_id LEFT JOIN LATERAL (
    SELECT * FROM trigger_deliveries l WHERE l.trigger_id = t.trigger_id ORDER BY l.delivery_id DESC LIMIT 1
) AS d ON true

-- name: list_triggers
-- A tenant's triggers by name, after a name ($2); with $4 those of one job, with $5 those of one kind.
SELECT <<trigger_columns>>
WHERE t.tenant_id = $1 AND t.name > $2 AND ($4::text IS NULL OR t.job = $4::text COLLATE "C")
  AND ($5::text IS NULL OR t.kind = $5)
ORDER BY t.name LIMIT $3;

-- name: triggers_named
-- Triggers by name.
SELECT <<trigger_columns>>
WHERE t.tenant_id = $1 AND t.name = ANY ($2::text[]) ORDER BY t.name;

-- name: trigger_by_id
-- One trigger of any tenant: the address of a webhook names it, and its signature authenticates the request.
SELECT *, extract(epoch FROM db_now())::float8 AS now_s FROM triggers WHERE trigger_id = $1;

-- name: lock_trigger
-- Locks a trigger against edits and deletion, and against deliveries that would start something meanwhile.
SELECT * FROM triggers WHERE tenant_id = $1 AND name = $2 FOR UPDATE;

-- name: update_trigger
-- Replaces the definition of a trigger of the same kind and version.
UPDATE triggers SET job = $5, after_job = $6, outcomes = $7, spec = $8, version = version + 1, updated_at = db_now(),
    since_at = CASE WHEN after_job IS DISTINCT FROM $6 THEN db_now() ELSE since_at END
WHERE tenant_id = $1 AND name = $2 AND kind = $3 AND version = $4
RETURNING trigger_id;

-- name: pause_trigger
-- Pauses a trigger, or changes the reason of its pause.
UPDATE triggers SET paused_at = coalesce(paused_at, db_now()), pause_reason = $3, updated_at = db_now()
WHERE tenant_id = $1 AND name = $2
RETURNING trigger_id;

-- name: resume_trigger
-- Resumes a paused trigger; what ended or arrived in the meantime does not count for a completion.
UPDATE triggers SET paused_at = NULL, pause_reason = NULL, updated_at = db_now(), since_at = db_now()
WHERE tenant_id = $1 AND name = $2 AND paused_at IS NOT NULL
RETURNING trigger_id;

-- name: delete_trigger
-- Deletes a trigger with its deliveries.
DELETE FROM triggers WHERE tenant_id = $1 AND name = $2
RETURNING trigger_id;

-- name: set_trigger_secrets
-- Replaces the signing secrets of a trigger, which the caller has locked.
UPDATE triggers SET secrets = $3, key_id = $4, envelope = $5, updated_at = db_now() WHERE tenant_id = $1 AND name = $2
RETURNING trigger_id;

-- name: note_rejection
-- Records that a request was rejected, at most every ten seconds: strangers can send many.
UPDATE triggers SET last_rejected_at = db_now(), last_rejection = $2
WHERE trigger_id = $1 AND coalesce(last_rejected_at < db_now() - interval '10 seconds', true);

-- name: record_delivery
-- Inserts a delivery, or counts that it came again; either way its row is locked until the end of the transaction, so
-- that of equal deliveries one decides. Nothing if the trigger was deleted.
INSERT INTO trigger_deliveries AS d (trigger_id, tenant_id, key, event, outcome)
SELECT t.trigger_id, t.tenant_id, $3, $4, 'pending' FROM triggers t WHERE t.trigger_id = $1 AND t.tenant_id = $2
ON CONFLICT (trigger_id, key) DO UPDATE SET repeats = d.repeats + 1
RETURNING d.*, (xmax = 0) AS is_first;

-- name: decide_delivery
-- Records what a delivery led to, unless it has started an execution.
UPDATE trigger_deliveries SET outcome = $3, reason = $4, execution_id = $5, params = $6
WHERE delivery_id = $1 AND tenant_id = $2 AND outcome <> 'started'
RETURNING delivery_id;

-- name: list_trigger_deliveries
-- Deliveries of a trigger, newest first, before an id; of one outcome, if given.
SELECT d.* FROM trigger_deliveries d
WHERE d.tenant_id = $1 AND d.trigger_id = $2 AND d.delivery_id < $3 AND ($5::text IS NULL OR d.outcome = $5)
ORDER BY d.delivery_id DESC LIMIT $4;

-- name: forget_trigger_deliveries
-- Deletes deliveries older than a week, and of each trigger those older than a day that are not among its newest 10,000.
WITH excess AS (
    SELECT t.trigger_id, b.delivery_id AS last FROM triggers t CROSS JOIN LATERAL (
        SELECT delivery_id FROM trigger_deliveries n WHERE n.trigger_id = t.trigger_id
        ORDER BY n.delivery_id DESC OFFSET 10000 LIMIT 1
    ) AS b
), old AS (
    (SELECT delivery_id FROM trigger_deliveries
     WHERE received_at < db_now() - interval '7 days' AND outcome <> 'pending' LIMIT $1)
    UNION
    (SELECT d.delivery_id FROM excess x
     JOIN trigger_deliveries d ON d.trigger_id = x.trigger_id AND d.delivery_id <= x.last
     WHERE d.received_at < db_now() - interval '1 day' AND d.outcome <> 'pending' LIMIT $1)
)
DELETE FROM trigger_deliveries d USING old WHERE d.delivery_id = old.delivery_id;

-- name: has_completions
-- Whether a trigger waits for the end of an execution.
SELECT EXISTS (SELECT FROM triggers WHERE after_job IS NOT NULL AND paused_at IS NULL);

-- name: notice_ends
-- Records executions that have just ended as deliveries to the triggers that wait for them. Steps of workflows belong to
-- hidden jobs, which count as deleted.
INSERT INTO trigger_deliveries (trigger_id, tenant_id, key, event, outcome)
SELECT t.trigger_id, t.tenant_id, h.execution_id::text, h.state, 'pending'
FROM history h JOIN jobs j ON j.job_id = h.job_id AND j.deleted_at IS NULL
JOIN triggers t ON t.tenant_id = h.tenant_id AND t.after_job = j.name AND t.paused_at IS NULL
 AND h.state = ANY (t.outcomes) AND h.finished_at >= t.since_at
WHERE h.execution_id = ANY ($1::uuid[]) AND h.finished_at >= (SELECT db_now()) - interval '5 minutes'
ORDER BY h.execution_id, t.trigger_id
ON CONFLICT (trigger_id, key) DO NOTHING
RETURNING delivery_id;

-- name: notice_missed_ends
-- The same for the newest $1 executions of each such job that ended in the last quarter of an hour: a process that had not
-- read a new trigger yet, or is older than triggers, settled them.
INSERT INTO trigger_deliveries (trigger_id, tenant_id, key, event, outcome)
SELECT t.trigger_id, t.tenant_id, h.execution_id::text, h.state, 'pending'
FROM triggers t JOIN jobs j ON j.tenant_id = t.tenant_id AND j.name = t.after_job AND j.deleted_at IS NULL
CROSS JOIN LATERAL (
    SELECT e.execution_id, e.state FROM history e
    WHERE e.job_id = j.job_id AND e.finished_at >= greatest(t.since_at, (SELECT db_now()) - interval '15 minutes')
      AND e.state = ANY (t.outcomes)
    ORDER BY e.execution_id DESC LIMIT $1
) AS h
WHERE t.after_job IS NOT NULL AND t.paused_at IS NULL AND NOT EXISTS (
    SELECT FROM trigger_deliveries d WHERE d.trigger_id = t.trigger_id AND d.key = h.execution_id::text COLLATE "C"
)
ORDER BY h.execution_id, t.trigger_id
ON CONFLICT (trigger_id, key) DO NOTHING
RETURNING delivery_id;

-- name: pending_deliveries
-- Deliveries that are still to be decided, after an id, with their triggers.
SELECT t.*, d.delivery_id, d.key, d.event, d.outcome, d.reason, d.execution_id, d.params, d.repeats, d.received_at
FROM trigger_deliveries d JOIN triggers t USING (trigger_id)
WHERE d.outcome = 'pending' AND d.delivery_id > $1 ORDER BY d.delivery_id LIMIT $2;

-- name: lock_pending
-- Locks a delivery that is still to be decided.
SELECT delivery_id FROM trigger_deliveries
WHERE delivery_id = $1 AND tenant_id = $2 AND outcome = 'pending' FOR UPDATE SKIP LOCKED;

-- name: leads_back
-- Whether the end of a job ($3) leads to another ($4), by completions except those of trigger $2, and by dependencies.
WITH RECURSIVE edges AS (
    SELECT after_job AS first, job AS next FROM triggers
    WHERE tenant_id = $1 AND after_job IS NOT NULL AND name <> $2::text COLLATE "C"
    UNION
    SELECT p.name, c.name FROM job_needs n JOIN jobs p ON p.job_id = n.parent_id JOIN jobs c ON c.job_id = n.child_id
    WHERE n.tenant_id = $1
), reached AS (
    SELECT $3::text COLLATE "C" AS name
    UNION
    SELECT e.next FROM reached r JOIN edges e ON e.first = r.name
)
SELECT EXISTS (SELECT FROM reached WHERE name = $4::text COLLATE "C");
