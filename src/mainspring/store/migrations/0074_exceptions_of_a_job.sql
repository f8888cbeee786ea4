-- A page of a job's lost executions among a million that succeeded. PostgreSQL otherwise walks all of them.
-- The days that have ended get the index first: no execution is written to them. Writes wait only from the lock of the
-- whole table to the end, while the index of the present day is built.
DO $$
DECLARE day text;
BEGIN
    FOR day IN SELECT inhrelid::regclass::text FROM pg_inherits
               WHERE inhparent = 'history'::regclass AND inhrelid::regclass::text ~ 'history_[0-9]{8}$'
                 AND right(inhrelid::regclass::text, 8) < to_char(db_now(), 'YYYYMMDD') LOOP
        EXECUTE format('CREATE INDEX %I ON %s (job_id, state, execution_id) WHERE state <> ''succeeded''',
                       substring(day FROM 'history_.*') || '_job_id_state_execution_id_idx', day);
    END LOOP;
END $$;

CREATE INDEX history_job_exceptions ON ONLY history (job_id, state, execution_id) WHERE state <> 'succeeded';

DO $$
DECLARE day text; index text;
BEGIN
    FOR day IN SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'history'::regclass LOOP
        index := substring(day FROM 'history_.*') || '_job_id_state_execution_id_idx';
        IF to_regclass(index) IS NULL THEN
            EXECUTE format('CREATE INDEX %I ON %s (job_id, state, execution_id) WHERE state <> ''succeeded''', index, day);
        END IF;
        EXECUTE format('ALTER INDEX history_job_exceptions ATTACH PARTITION %I', index);
    END LOOP;
END $$;
