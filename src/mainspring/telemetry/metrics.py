"""Every exported metric. Labels never contain execution or worker ids."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter as Tally
from collections.abc import Sequence

from prometheus_client import Counter, Gauge, Histogram

LATENCY_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
DURATION_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 600, 1800, 3600, 14400, 86400)

JOBS_SCHEDULED = Counter("mainspring_jobs_scheduled", "Executions created by the schedulers")
JOBS_COMPLETED = Counter("mainspring_jobs_completed", "Executions that reached a final state", ["status"])
JOB_DURATION = Histogram("mainspring_job_duration_seconds", "Duration of attempts", buckets=DURATION_BUCKETS)
JOB_QUEUE_SIZE = Gauge("mainspring_job_queue_size", "Queued executions", ["queue", "priority"])
QUEUE_OLDEST = Gauge("mainspring_queue_oldest_seconds", "Age of the oldest queued execution", ["queue"])
QUEUE_RUNNING = Gauge("mainspring_queue_running", "Running executions of a queue", ["queue"])
QUEUE_SLOTS = Gauge("mainspring_queue_slots", "Slots of live workers that serve a queue", ["queue"])
SCHEDULER_IS_LEADER = Gauge("mainspring_scheduler_is_leader", "1 on the scheduler that runs the leader duties")
ACTIVE_WORKERS = Gauge("mainspring_active_workers", "Sessions with a live lease")
SCHEDULING_LATENCY = Histogram(
    "mainspring_scheduling_latency_seconds", "Time from due to queued", buckets=LATENCY_BUCKETS
)
START_LATENCY = Histogram("mainspring_start_latency_seconds", "Time from due to started", buckets=LATENCY_BUCKETS)
WORKER_UTILIZATION = Gauge("mainspring_worker_utilization", "Share of the slots of live sessions that are busy")
EXECUTION_ERRORS = Counter("mainspring_job_execution_errors", "Attempts that did not succeed", ["error_type"])
WHEEL_ENTRIES = Gauge("mainspring_wheel_entries", "Distinct schedules on the wheel")
SHARD_JOBS = Gauge("mainspring_shard_jobs", "Jobs in a shard, updated by its owner every ten minutes", ["shard"])
SHARD_HEARTBEAT_AGE = Gauge(
    "mainspring_shard_heartbeat_age_seconds",
    "Time since the owner of a shard was last seen; infinite without one",
    ["shard"],
)
TICK_SECONDS = Histogram("mainspring_tick_seconds", "Duration of deciding a batch of fires", buckets=LATENCY_BUCKETS)
FIRES_SKIPPED = Counter("mainspring_fires_missed", "Fires recorded as skipped", ["policy"])
STALE_RESULTS = Counter(
    "mainspring_stale_results", "Results rejected because another attempt took over or the execution had ended"
)
IDEMPOTENCY_SKIPS = Counter(
    "mainspring_idempotency_skips", "Submissions answered with the execution of an earlier request with the same key"
)
DEAD_LETTERS = Gauge("mainspring_dead_letters", "Open dead letters")
FIRING_HELD = Gauge("mainspring_firing_held", "1 while firing is held after a restore")
RESULTS_PENDING = Gauge("mainspring_results_pending", "Reported results that are not settled yet")
ALERTS_FIRING = Gauge("mainspring_alerts_firing", "Firing alerts", ["severity"])
ALERT_DELIVERIES = Counter("mainspring_alert_deliveries", "Attempts to deliver to a channel", ["channel", "outcome"])
TRIGGER_DELIVERIES = Counter(
    "mainspring_trigger_deliveries",
    "Deliveries to triggers by kind and outcome (started, duplicate, filtered, paused, refused, rejected, limited)",
    ["kind", "outcome"],
)
TRIGGER_LOOKS = Counter(
    "mainspring_trigger_looks", "Looks of triggers for files, by whether the place could be read", ["outcome"]
)
CLOCK_SKEW = Gauge("mainspring_clock_skew_seconds", "Clock of this machine minus that of the database")
REPLICA_LAG = Gauge("mainspring_replica_lag_seconds", "How far the read replica of an API process is behind")
READS = Counter(
    "mainspring_reads", "Reads that a replica may answer, by who answered; retried: it failed, then primary", ["target"]
)
ENGINE_UP = Gauge("mainspring_engine_up", "Whether an optional engine is connected, by its role", ["role", "engine"])
ENGINE_LAG = Gauge(
    "mainspring_engine_lag", "Records of an optional engine that are not processed yet", ["role", "engine"]
)
FALSE_FIRE_LOCKS = Counter(
    "mainspring_false_fire_locks",
    "Shards whose fire lock named a later owner that the database does not know; the lock was ignored",
)
QUEUE_RECORDS = Counter(
    "mainspring_queue_records",
    "Ready executions in the queue engine: published, received, claimed; refused: already claimed; dropped: no room;"
    " unreadable",
    ["outcome"],
)
EVENTS_RELAYED = Counter(
    "mainspring_relayed_events",
    "Events that left the outbox for the event stream (relayed), or were dropped",
    ["outcome"],
)
EVENTS_WAITING = Gauge("mainspring_waiting_events", "Events that wait for the event stream, as the leader sees them")
EVENTS_WAITING_S = Gauge("mainspring_waiting_events_seconds", "Age of the oldest event that waits for the event stream")
STREAMED_RESULTS = Counter(
    "mainspring_streamed_results",
    "Results in the result stream by outcome (appended, settled, duplicate, failed), and records that were discarded"
    " (unsigned, unreadable)",
    ["outcome"],
)
RUNS_FINISHED = Counter("mainspring_runs_finished", "Finished workflow runs", ["state"])
RUNS_IN_TIME = Counter(
    "mainspring_runs_in_time", "Finished workflow runs with an SLA, by whether they met it", ["kept"]
)
PREEMPTIONS = Counter("mainspring_preemptions", "Attempts preempted for more urgent executions")
RUN_SLA_RATIO = Gauge("mainspring_run_sla_ratio", "Share of the last day's runs with an SLA that met it", ["workflow"])
READ_CACHE = Counter(
    "mainspring_read_cache_requests",
    "Status reads by what was read (job, execution, list) and where it was found: in the cache of this process (hit), "
    "in the shared cache (shared), or in the database (miss)",
    ["kind", "result"],
)
OUTPUT_BYTES = Counter("mainspring_output_bytes", "Bytes of output that were stored")
OUTPUT_CUT = Counter("mainspring_output_cut", "Attempts whose output was cut because a quota of the tenant is used up")
ARCHIVED_ROWS = Counter("mainspring_archived_rows", "Rows moved to the archive", ["table"])
ARCHIVED_BYTES = Counter("mainspring_archived_bytes", "Bytes of files written to the archive", ["table"])
ARCHIVE_LAG = Gauge(
    "mainspring_archive_lag_days", "Days that are old enough for the archive and not archived yet", ["table"]
)
RESCUED = Counter("mainspring_executions_rescued", "Executions rescued from lost sessions")


def observe_all(histogram: Histogram, values: Sequence[float]) -> None:
    """Observe many values with one lock per bucket instead of two per value."""
    if len(values) < 4:
        for value in values:
            histogram.observe(value)
        return
    bounds = histogram._upper_bounds
    for bucket, n in Tally(bisect_left(bounds, value) for value in values).items():
        histogram._buckets[bucket].inc(n)
    histogram._sum.inc(sum(values))
