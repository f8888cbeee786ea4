-- What is rare is found without reading what is common. Neither index has rows for attempts and executions that simply
-- succeed, so the hot path does not pay for them.

-- A worker's page tells what went wrong on it.
CREATE INDEX attempts_session ON attempts (session_id, ended_at);

-- A page of the lost, or of the skipped, among millions that succeeded.
CREATE INDEX history_exceptions ON history (tenant_id, state, execution_id) WHERE state <> 'succeeded';
