-- The same ids, five times as fast: a body without FROM is put straight into the statement that calls the function, and
-- only if it promises no more than what it is made of (convert_to is stable, not immutable).
CREATE OR REPLACE FUNCTION execution_id(time_prefix text, job_id uuid, trigger_key text) RETURNS uuid
    LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT (time_prefix || overlay('8' || substr(encode(sha256(convert_to(job_id::text || ':' || trigger_key, 'UTF8')),
                                                        'hex'), 1, 18) PLACING 'a' FROM 5 FOR 0))::uuid
$$;
