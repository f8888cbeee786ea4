"""Every series this program exports, in one place. Never an execution or worker id as a label."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter as Tally
from collections.abc import Sequence

from prometheus_client import Counter, Gauge, Histogram

FINE = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
LONG = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 600, 1800, 3600, 14400, 86400)

JOBS_SCHEDULED = Counter("mainspring_jobs_scheduled", "Executions decided by the schedulers")
JOBS_COMPLETED = Counter("mainspring_jobs_completed", "Executions that ended", ["status"])
JOB_DURATION = Histogram("mainspring_job_duration_seconds", "How long attempts took", buckets=LONG)
JOB_QUEUE_SIZE = Gauge("mainspring_job_queue_size", "Queued executions", ["queue", "priority"])
QUEUE_OLDEST = Gauge("mainspring_queue_oldest_seconds", "Age of the oldest queued execution", ["queue"])
QUEUE_RUNNING = Gauge("mainspring_queue_running", "Executions of a queue that run", ["queue"])
QUEUE_SLOTS = Gauge("mainspring_queue_slots", "Slots of live workers that serve a queue", ["queue"])
SCHEDULER_IS_LEADER = Gauge("mainspring_scheduler_is_leader", "1 on the scheduler with the singleton duties")
ACTIVE_WORKERS = Gauge("mainspring_active_workers", "Sessions with a live lease")
SCHEDULING_LATENCY = Histogram("mainspring_scheduling_latency_seconds", "From due to queued", buckets=FINE)
START_LATENCY = Histogram("mainspring_start_latency_seconds", "From due to started", buckets=FINE)
WORKER_UTILIZATION = Gauge("mainspring_worker_utilization", "Busy slots of all slots of live sessions")
EXECUTION_ERRORS = Counter("mainspring_job_execution_errors", "Attempts that did not succeed", ["error_type"])
WHEEL_ENTRIES = Gauge("mainspring_wheel_entries", "Distinct schedules on the wheel")
SHARD_JOBS = Gauge("mainspring_shard_jobs", "Jobs in a shard, told by its owner every ten minutes", ["shard"])
SHARD_HEARTBEAT_AGE = Gauge(
    "mainspring_shard_heartbeat_age_seconds", "Since a shard's owner was last seen; infinite without one", ["shard"]
)
TICK_SECONDS = Histogram("mainspring_tick_seconds", "How long deciding a batch of fires took", buckets=FINE)
FIRES_SKIPPED = Counter("mainspring_fires_missed", "Fires recorded as skipped", ["policy"])
STALE_RESULTS = Counter("mainspring_stale_results", "Results refused because nobody waited for them any more")
DEAD_LETTERS = Gauge("mainspring_dead_letters", "Executions that failed for good and wait for a person")
RESULTS_PENDING = Gauge("mainspring_results_pending", "Results reported and not yet settled")
ALERTS_FIRING = Gauge("mainspring_alerts_firing", "Alerts that fire", ["severity"])
ALERT_DELIVERIES = Counter("mainspring_alert_deliveries", "Tries to tell a channel", ["channel", "outcome"])
CLOCK_SKEW = Gauge("mainspring_clock_skew_seconds", "This machine's clock minus the database's")
RUNS_FINISHED = Counter("mainspring_runs_finished", "Runs of workflows that ended", ["state"])
RUNS_IN_TIME = Counter("mainspring_runs_in_time", "Runs of workflows with an SLA, by whether they kept it", ["kept"])
PREEMPTIONS = Counter("mainspring_preemptions", "Attempts that were asked to make room for more urgent ones")
RUN_SLA_RATIO = Gauge(
    "mainspring_run_sla_ratio", "Of the last day's runs with an SLA, those that succeeded in time", ["workflow"]
)
RESCUED = Counter("mainspring_executions_rescued", "Executions taken back from sessions that stopped")


def observe_all(histogram: Histogram, values: Sequence[float]) -> None:
    """Many observations at the price of a few: one lock per bucket that is hit instead of two per value."""
    if len(values) < 4:
        for value in values:
            histogram.observe(value)
        return
    bounds = histogram._upper_bounds
    for bucket, n in Tally(bisect_left(bounds, value) for value in values).items():
        histogram._buckets[bucket].inc(n)
    histogram._sum.inc(sum(values))
