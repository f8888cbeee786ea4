"""The options of `mainspring serve` that connect other engines. Without them, PostgreSQL does their work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from mainspring.domain.topic import read_clusters, read_rules


def _check_clusters(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    read_clusters(values)
    return values


def _check_topic_rules(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    read_rules(values)
    return values


def _engine(name: str, help: str) -> Callable[..., Any]:
    variable = f"MAINSPRING_{name.upper().replace('-', '_')}"
    return click.option(f"--{name}", envvar=variable, show_envvar=True, metavar="URL", help=help)


ENGINE_OPTIONS = (
    _engine(
        "bus",
        "Engine for wake-ups between processes: redis://HOST or rediss://HOST, with the extra `redis`.  "
        "[default: PostgreSQL]",
    ),
    _engine(
        "cache",
        "Engine for a cache of status reads that api processes share: redis://HOST.  [default: one per process]",
    ),
    _engine(
        "rate-limiter",
        "Engine that counts requests of all api processes for --rate-limit: redis://HOST.  "
        "[default: each process counts its own]",
    ),
    _engine(
        "queue",
        "Engine that carries queued executions to api processes: kafka://HOST, with the extra `kafka`.  "
        "[default: PostgreSQL]",
    ),
    _engine(
        "delays",
        "Engine for the next due instants of waiting executions: redis://HOST.  [default: PostgreSQL]",
    ),
    _engine(
        "fire-lock",
        "Engine that also locks each instant of a schedule: redis://HOST.  [default: locks of PostgreSQL only]",
    ),
    _engine(
        "results",
        "Engine that keeps results while PostgreSQL is unavailable: kafka://HOST, with the extra `kafka`.  "
        "[default: workers keep them in memory]",
    ),
    _engine(
        "events",
        "Topic that receives every event: kafka://HOST/TOPIC, with the extra `kafka`.  [default: none]",
    ),
    click.option(
        "--event-types",
        envvar="MAINSPRING_EVENT_TYPES",
        show_envvar=True,
        default="all",
        show_default=True,
        type=click.Choice(["all", "ends"]),
        help="Events that the topic of --events receives: `ends` leaves out created, queued, started and skipped.",
    ),
    click.option(
        "--events-waiting",
        envvar="MAINSPRING_EVENTS_WAITING",
        show_envvar=True,
        default=1_000_000,
        show_default=True,
        type=click.IntRange(1_000, 100_000_000),
        metavar="N",
        help="Events kept while the topic of --events is unavailable; beyond that, the oldest are dropped.",
    ),
    click.option(
        "--kafka-triggers",
        multiple=True,
        metavar="NAME=URL",
        envvar="MAINSPRING_KAFKA_TRIGGERS",
        show_envvar=True,
        callback=_check_clusters,
        help="Kafka cluster whose topics triggers may read, with the extra `kafka`, such as main=kafka://HOST. The same"
        " for all scheduler processes. Repeatable.",
    ),
    click.option(
        "--trigger-topic",
        "trigger_topics",
        multiple=True,
        metavar="[TENANT=]CLUSTER/PATTERN",
        envvar="MAINSPRING_TRIGGER_TOPIC",
        show_envvar=True,
        callback=_check_topic_rules,
        help="Topics that triggers may read, such as main/orders.*: those of the first tenant, of TENANT, or with *= of"
        " all. None without it. Repeatable.",
    ),
    _engine(
        "coordinator", "Engine that detects lost schedulers: etcd://HOST or zookeeper://HOST.  [default: PostgreSQL]"
    ),
)
