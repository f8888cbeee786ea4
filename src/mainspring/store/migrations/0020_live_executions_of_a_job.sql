-- The newest live executions of a job are read in order: a job with 100,000 queued ones took 30 ms to sort them.
DROP INDEX executions_job;
CREATE INDEX executions_job ON executions (job_id, execution_id);
