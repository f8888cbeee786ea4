-- CPU time and memory of programs, as their workers measure them, by job and day. Sizes of jobs are suggested from it.
CREATE TABLE job_usage (
    job_id      uuid NOT NULL,
    day         date NOT NULL,                      -- UTC
    tenant_id   int NOT NULL,
    attempts    bigint NOT NULL,
    cpu_ms      bigint NOT NULL,                    -- in total
    wall_ms     bigint NOT NULL,
    cores_max   int NOT NULL,                       -- thousandths of a core: the highest mean of one attempt
    memory_max  bigint NOT NULL,                    -- bytes: of the largest process of any attempt
    PRIMARY KEY (job_id, day)
) WITH (fillfactor = 70);
CREATE INDEX job_usage_day ON job_usage (day);
