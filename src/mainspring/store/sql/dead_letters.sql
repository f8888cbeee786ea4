-- A dead letter is locked before what is made of it; settling locks executions and only ever inserts dead letters, so the
-- two never wait for each other in a circle.

-- name: count_open
-- How many dead letters wait for a person.
SELECT count(*) FROM dead_letters WHERE tenant_id = $1 AND state = 'open';
