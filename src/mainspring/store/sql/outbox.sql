-- Messages are written in the transaction of the change they report. Their ids are derived from the event, so that writing
-- one twice has no effect.

-- name: notify_settled
-- Executions that have just ended, for every subscribed channel and every `notify` of their jobs. Runs after the settling,
-- in the same transaction. Without channels and event stream it reads nothing else.
WITH ended AS (
    SELECT h.*, j.name AS job FROM history h JOIN jobs j USING (job_id)
    WHERE h.execution_id = ANY ($1::uuid[]) AND h.finished_at >= (SELECT db_now()) - interval '5 minutes'
      AND (EXISTS (SELECT FROM channels WHERE disabled_at IS NULL) OR (SELECT events_wanted()))
), wanted AS (
    SELECT e.execution_id, c.channel_id, 'execution.' || e.state AS event, NULL::float8 AS usual_ms
    FROM ended e JOIN channels c ON c.tenant_id = e.tenant_id AND c.disabled_at IS NULL
     AND 'execution.' || e.state = ANY (c.events)
    WHERE c.jobs = '{}' OR EXISTS (
        SELECT FROM unnest(c.jobs) AS p (name)
        WHERE e.job = p.name OR (p.name LIKE '%*' AND starts_with(e.job, rtrim(p.name, '*')))
    )
    UNION ALL
    SELECT e.execution_id, c.channel_id, 'job.' || n.notice, usual.p95
    FROM ended e JOIN job_notices n ON n.job_id = e.job_id
    JOIN channels c ON c.tenant_id = n.tenant_id AND c.name = n.channel AND c.disabled_at IS NULL
    LEFT JOIN LATERAL (
        SELECT p.state FROM (
            SELECT state FROM history
            WHERE n.notice = 'recovered' AND job_id = e.job_id AND execution_id < e.execution_id
            ORDER BY execution_id DESC LIMIT 5000
        ) AS p
        WHERE p.state NOT IN ('skipped', 'cancelled') LIMIT 1
    ) AS before ON true
    LEFT JOIN LATERAL (
        SELECT percentile_cont(0.95) WITHIN GROUP (ORDER BY p.duration_ms) AS p95, count(*) AS n FROM (
            SELECT duration_ms, state FROM history
            WHERE n.notice = 'slow' AND job_id = e.job_id AND execution_id < e.execution_id
            ORDER BY execution_id DESC LIMIT 100
        ) AS p
        WHERE p.state = 'succeeded'
    ) AS usual ON true
    WHERE CASE n.notice
        WHEN 'failed' THEN e.state IN ('failed', 'timed_out', 'lost')
        WHEN 'recovered' THEN e.state = 'succeeded' AND before.state IN ('failed', 'timed_out', 'lost')
        WHEN 'slow' THEN e.state = 'succeeded' AND usual.n >= 10 AND e.duration_ms > n.factor * usual.p95
        ELSE false END
), fresh AS (
    INSERT INTO outbox (event_id, tenant_id, channel_id, event, stream, body)
    SELECT md5(e.execution_id || ':' || w.event)::uuid, e.tenant_id, w.channel_id, w.event, e.job_id,
           jsonb_build_object(
               'execution_id', e.execution_id, 'job_id', e.job_id, 'job', e.job, 'state', e.state, 'trigger', e.trigger,
               'queue', e.queue, 'attempt', e.attempt, 'fire_at', e.fire_at, 'due_at', e.due_at,
               'started_at', e.started_at, 'finished_at', e.finished_at, 'duration_ms', e.duration_ms,
               'exit_code', e.exit_code, 'reason', e.reason, 'error', left(e.error, 2000), 'usual_ms', w.usual_ms
           )
    FROM wanted w JOIN ended e USING (execution_id)
    ORDER BY e.execution_id, w.event, w.channel_id
    ON CONFLICT (channel_id, event_id) DO NOTHING
    RETURNING message_id
), streamed AS (
    INSERT INTO event_outbox (event_id, tenant_id, event, key, body)
    SELECT md5(e.execution_id || ':execution.' || e.state)::uuid, e.tenant_id, 'execution.' || e.state, e.job_id,
           jsonb_build_object(
               'execution_id', e.execution_id, 'job_id', e.job_id, 'job', e.job, 'status', e.state, 'trigger', e.trigger,
               'queue', e.queue, 'attempt', e.attempt, 'retry_count', greatest(e.attempt - 1, 0), 'fire_at', e.fire_at,
               'due_at', e.due_at, 'started_at', e.started_at, 'finished_at', e.finished_at,
               'duration_ms', e.duration_ms, 'exit_code', e.exit_code, 'reason', e.reason,
               'error_message', left(e.error, 2000)
           )
    FROM ended e WHERE (SELECT events_wanted()) ORDER BY e.finished_at, e.execution_id
    RETURNING event_number
)
SELECT (SELECT count(*) FROM fresh) + (SELECT count(*) FROM streamed) AS n;

-- name: notify_retrying
-- Attempts that did not succeed and are followed by another.
WITH retrying AS (
    SELECT e.*, j.name AS job, a.outcome, a.exit_code, left(a.error, 2000) AS error, a.duration_ms AS took_ms
    FROM executions e JOIN jobs j USING (job_id)
    JOIN attempts a ON a.execution_id = e.execution_id AND a.attempt = e.attempt
    WHERE e.execution_id = ANY ($1::uuid[]) AND e.state IN ('waiting', 'queued')
      AND (EXISTS (SELECT FROM channels WHERE disabled_at IS NULL) OR (SELECT events_wanted()))
), fresh AS (
    INSERT INTO outbox (event_id, tenant_id, channel_id, event, stream, body)
    SELECT md5(e.execution_id || ':' || e.attempt || ':execution.retrying')::uuid, e.tenant_id, c.channel_id,
           'execution.retrying', e.job_id,
           jsonb_build_object(
               'execution_id', e.execution_id, 'job_id', e.job_id, 'job', e.job, 'state', e.state,
               'trigger', e.trigger, 'queue', e.queue, 'attempt', e.attempt, 'fire_at', e.fire_at, 'due_at', e.due_at,
               'outcome', e.outcome, 'exit_code', e.exit_code, 'error', e.error
           )
    FROM retrying e
    JOIN channels c ON c.tenant_id = e.tenant_id AND c.disabled_at IS NULL AND 'execution.retrying' = ANY (c.events)
    WHERE c.jobs = '{}' OR EXISTS (
        SELECT FROM unnest(c.jobs) AS p (name)
        WHERE e.job = p.name OR (p.name LIKE '%*' AND starts_with(e.job, rtrim(p.name, '*')))
    )
    ORDER BY e.execution_id, c.channel_id
    ON CONFLICT (channel_id, event_id) DO NOTHING
    RETURNING message_id
), streamed AS (
    INSERT INTO event_outbox (event_id, tenant_id, event, key, body)
    SELECT md5(e.execution_id || ':' || e.attempt || ':execution.retrying')::uuid, e.tenant_id, 'execution.retrying',
           e.job_id, jsonb_build_object(
               'execution_id', e.execution_id, 'job_id', e.job_id, 'job', e.job, 'status', e.outcome,
               'trigger', e.trigger, 'queue', e.queue, 'attempt', e.attempt, 'retry_count', greatest(e.attempt - 1, 0),
               'fire_at', e.fire_at, 'due_at', e.due_at, 'duration_ms', e.took_ms, 'exit_code', e.exit_code,
               'error_message', e.error
           )
    FROM retrying e WHERE (SELECT events_wanted()) ORDER BY e.execution_id
    RETURNING event_number
)
SELECT (SELECT count(*) FROM fresh) + (SELECT count(*) FROM streamed) AS n;

-- name: notify_late
-- Executions that have not started in time, of jobs that notify when late. Checks at most $2 such jobs, after $1.
WITH checked AS (
    SELECT DISTINCT job_id FROM (
        SELECT job_id FROM job_notices WHERE notice = 'late' AND job_id > $1 ORDER BY job_id LIMIT $2
    ) AS few
), late AS (
    SELECT e.*, j.name AS job, n.channel, n.by_s
    FROM checked JOIN job_notices n ON n.job_id = checked.job_id AND n.notice = 'late'
    JOIN executions e ON e.job_id = n.job_id AND e.attempt = 0 AND e.due_at < 'infinity'
     AND e.due_at < (SELECT db_now()) - make_interval(secs => n.by_s)
    JOIN jobs j ON j.job_id = n.job_id AND j.paused_at IS NULL
), fresh AS (
    INSERT INTO outbox (event_id, tenant_id, channel_id, event, stream, body)
    SELECT md5(e.execution_id || ':job.late')::uuid, e.tenant_id, c.channel_id, 'job.late', e.job_id,
           jsonb_build_object('execution_id', e.execution_id, 'job_id', e.job_id, 'job', e.job, 'state', e.state,
                              'trigger', e.trigger, 'queue', e.queue, 'fire_at', e.fire_at, 'due_at', e.due_at,
                              'by_s', e.by_s)
    FROM late e JOIN channels c ON c.tenant_id = e.tenant_id AND c.name = e.channel AND c.disabled_at IS NULL
    ORDER BY e.execution_id, c.channel_id
    ON CONFLICT (channel_id, event_id) DO NOTHING
    RETURNING message_id
)
SELECT (SELECT count(*) FROM checked) AS checked, (SELECT max(job_id::text) FROM checked)::uuid AS last, count(*) AS n
FROM fresh;

-- name: notify_missed
-- Fires skipped in the last hour because they were missed, of jobs that notify of that. Paged like notify_late.
WITH checked AS (
    SELECT DISTINCT job_id FROM (
        SELECT job_id FROM job_notices WHERE notice = 'missed' AND job_id > $1 ORDER BY job_id LIMIT $2
    ) AS few
), missed AS (
    SELECT h.*, j.name AS job, n.channel
    FROM checked JOIN job_notices n ON n.job_id = checked.job_id AND n.notice = 'missed'
    JOIN history h ON h.job_id = n.job_id AND h.state = 'skipped' AND h.reason IN ('misfire', 'start_by')
     AND h.finished_at >= (SELECT db_now()) - interval '1 hour'
    JOIN jobs j ON j.job_id = n.job_id
), fresh AS (
    INSERT INTO outbox (event_id, tenant_id, channel_id, event, stream, body)
    SELECT md5(e.execution_id || ':job.missed')::uuid, e.tenant_id, c.channel_id, 'job.missed', e.job_id,
           jsonb_build_object('execution_id', e.execution_id, 'job_id', e.job_id, 'job', e.job, 'state', e.state,
                              'trigger', e.trigger, 'queue', e.queue, 'fire_at', e.fire_at, 'reason', e.reason,
                              'fires', e.fires)
    FROM missed e JOIN channels c ON c.tenant_id = e.tenant_id AND c.name = e.channel AND c.disabled_at IS NULL
    ORDER BY e.execution_id, c.channel_id
    ON CONFLICT (channel_id, event_id) DO NOTHING
    RETURNING message_id
)
SELECT (SELECT count(*) FROM checked) AS checked, (SELECT max(job_id::text) FROM checked)::uuid AS last, count(*) AS n
FROM fresh;

-- name: notify_alert
-- An alert, for the channels of its rule ($6), or if there are none for the subscribed ones; for those of its job ($7);
-- and for those that have received its earlier event ($8).
WITH fresh AS (
    INSERT INTO outbox (event_id, tenant_id, channel_id, event, stream, body)
    SELECT $2, $1, c.channel_id, $3, $4, $5
    FROM channels c
    WHERE c.tenant_id = $1 AND c.disabled_at IS NULL AND (
        CASE WHEN cardinality($6::text[]) > 0 THEN c.name = ANY ($6::text[]) ELSE $3::text = ANY (c.events) END
        OR EXISTS (SELECT FROM outbox f WHERE f.channel_id = c.channel_id AND f.event_id = $8::uuid)
        OR c.name IN (
            SELECT n.channel FROM job_notices n JOIN jobs j USING (job_id)
            WHERE n.tenant_id = $1 AND n.notice = 'late' AND j.name = $7::text AND j.deleted_at IS NULL
        )
    )
    ON CONFLICT (channel_id, event_id) DO NOTHING
    RETURNING message_id
), streamed AS (
    INSERT INTO event_outbox (event_id, tenant_id, event, key, body)
    SELECT $2, $1, $3, $4, $5 WHERE (SELECT events_wanted())
    RETURNING event_number
)
SELECT (SELECT count(*) FROM fresh) + (SELECT count(*) FROM streamed) AS n;

-- name: pending_heads
-- The oldest pending message of each channel and stream with its wait: at most $3, after a channel and stream. One index
-- probe per stream, however many messages are behind it.
WITH RECURSIVE heads AS (
    (SELECT channel_id, stream, message_id, next_at, 1 AS n FROM outbox
     WHERE state = 'pending' AND (channel_id, stream) > ($1::uuid, $2::text COLLATE "C")
     ORDER BY channel_id, stream, message_id LIMIT 1)
    UNION ALL
    SELECT o.*, h.n + 1 FROM heads h CROSS JOIN LATERAL (
        SELECT channel_id, stream, message_id, next_at FROM outbox
        WHERE state = 'pending' AND (channel_id, stream) > (h.channel_id, h.stream)
        ORDER BY channel_id, stream, message_id LIMIT 1
    ) AS o
    WHERE h.n < $3
)
SELECT channel_id, stream, message_id, extract(epoch FROM next_at - (SELECT db_now()))::float8 AS wait_s FROM heads;

-- name: take_messages
-- Takes those messages that are due, under a lease of $2 s. Only the oldest of each channel and stream: this keeps the
-- order, and a refused message delays only its own stream. If the sender dies, the message is sent again. Returns also the
-- metadata of its job: owner and runbook are part of the message.
WITH due AS (
    SELECT o.message_id FROM outbox o JOIN channels c USING (channel_id)
    WHERE o.message_id = ANY ($1::bigint[]) AND o.state = 'pending' AND o.next_at <= (SELECT db_now())
      AND c.disabled_at IS NULL
      AND NOT EXISTS (
          SELECT FROM outbox b WHERE b.channel_id = o.channel_id AND b.stream = o.stream AND b.state = 'pending'
            AND b.message_id < o.message_id
      )
    ORDER BY o.message_id FOR UPDATE OF o SKIP LOCKED
)
UPDATE outbox o SET tries = tries + 1, next_at = db_now() + make_interval(secs => $2), tried_at = db_now()
FROM due, channels c
WHERE o.message_id = due.message_id AND c.channel_id = o.channel_id AND o.state = 'pending'
RETURNING o.message_id, o.event_id, o.tenant_id, o.event, o.body, o.tries, o.created_at, o.tried_at, c.channel_id,
          c.name, c.kind, c.target, c.secrets, c.key_id, c.envelope, (
              SELECT v.spec -> 'metadata' FROM jobs j JOIN job_versions v USING (job_id, version)
              WHERE j.job_id = (o.body ->> 'job_id')::uuid AND j.tenant_id = o.tenant_id
          ) AS metadata;

-- name: message_sent
-- Records a delivered message, if this is still the current try.
WITH done AS (
    UPDATE outbox SET state = 'sent', status = $3, excerpt = $4, error = NULL, duration_ms = $5
    WHERE message_id = $1 AND tries = $2 AND state = 'pending' RETURNING channel_id
)
UPDATE channels c SET failing_since = NULL, last_error = NULL FROM done
WHERE c.channel_id = done.channel_id AND c.failing_since IS NOT NULL;

-- name: message_failed
-- Records a failed try: the message is retried in $6 s, or dropped when it is older than $7 s. Marks the channel failing.
WITH done AS (
    UPDATE outbox SET status = $3, excerpt = $4, error = $8, duration_ms = $5,
        state = CASE WHEN created_at < db_now() - make_interval(secs => $7) THEN 'dropped' ELSE 'pending' END,
        next_at = db_now() + make_interval(secs => $6)
    WHERE message_id = $1 AND tries = $2 AND state = 'pending' RETURNING channel_id
)
UPDATE channels c SET failing_since = coalesce(failing_since, db_now()), last_error = $8 FROM done
WHERE c.channel_id = done.channel_id
RETURNING c.channel_id, c.failing_since;

-- name: hold_message
-- Holds a message back until the end of a silence. Does not count as a try.
UPDATE outbox SET next_at = $3, tries = tries - 1
WHERE message_id = $1 AND tries = $2 AND state = 'pending';

-- name: disable_failing
-- Disables channels that have failed for $1 s, drops their pending messages, and notifies the subscribed channels.
WITH gone AS (
    UPDATE channels SET disabled_at = db_now()
    WHERE disabled_at IS NULL AND failing_since < db_now() - make_interval(secs => $1)
    RETURNING channel_id, tenant_id, name, kind, failing_since, last_error, disabled_at
), dropped AS (
    UPDATE outbox o SET state = 'dropped', error = 'channel disabled: ' || coalesce(gone.last_error, '')
    FROM gone WHERE o.channel_id = gone.channel_id AND o.state = 'pending'
), notified AS (
    INSERT INTO outbox (event_id, tenant_id, channel_id, event, stream, body)
    SELECT md5(gone.channel_id || ':' || gone.disabled_at)::uuid, gone.tenant_id, c.channel_id, 'channel.disabled',
           'channel:' || gone.name,
           jsonb_build_object('channel', gone.name, 'kind', gone.kind, 'failing_since', gone.failing_since,
                              'disabled_at', gone.disabled_at, 'error', gone.last_error)
    FROM gone JOIN channels c ON c.tenant_id = gone.tenant_id AND c.channel_id <> gone.channel_id
     AND c.disabled_at IS NULL AND 'channel.disabled' = ANY (c.events)
    ON CONFLICT (channel_id, event_id) DO NOTHING
), streamed AS (
    INSERT INTO event_outbox (event_id, tenant_id, event, key, body)
    SELECT md5(gone.channel_id || ':' || gone.disabled_at)::uuid, gone.tenant_id, 'channel.disabled',
           'channel:' || gone.name,
           jsonb_build_object('channel', gone.name, 'kind', gone.kind, 'failing_since', gone.failing_since,
                              'disabled_at', gone.disabled_at, 'error', gone.last_error)
    FROM gone WHERE (SELECT events_wanted())
)
SELECT name, last_error FROM gone;

-- name: list_deliveries
-- Deliveries of a tenant, newest first, before an id; of one channel or in one state, if given.
SELECT o.message_id, o.event_id, o.event, o.stream, o.body, o.state, o.tries, o.created_at, o.tried_at, o.status,
       o.excerpt, o.error, o.duration_ms, c.name AS channel,
       CASE WHEN o.state = 'pending' THEN o.next_at END AS next_at
FROM outbox o JOIN channels c USING (channel_id)
WHERE o.tenant_id = $1 AND o.message_id < $2 AND ($4::text IS NULL OR c.name = $4::text COLLATE "C")
  AND ($5::text IS NULL OR o.state = $5)
ORDER BY o.message_id DESC LIMIT $3;

-- name: forget_messages
-- Deletes deliveries older than a week.
DELETE FROM outbox WHERE message_id IN (
    SELECT message_id FROM outbox WHERE created_at < db_now() - interval '7 days' AND state <> 'pending' LIMIT $1
);
