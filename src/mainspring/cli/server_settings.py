"""The options of `mainspring serve`. Each is a field of ServeConfig, except the log level."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from mainspring.cli.arguments import seconds
from mainspring.config import ARTIFACT_STORE, parse_roles
from mainspring.domain.errors import Invalid
from mainspring.domain.placement.resources import parse_amount
from mainspring.telemetry import logs

F = TypeVar("F", bound=Callable[..., Any])


def _retention(text: str) -> float:
    kept_s = seconds(text)
    if kept_s < 1:
        raise click.BadParameter(f"{text!r} is shorter than a second")
    return kept_s


def _size(text: str) -> int:
    try:
        return parse_amount("disk", text)
    except ValueError as error:
        raise Invalid(f"--artifact-limit: {error}") from None


def _days(_context: click.Context, _parameter: click.Parameter, days: float) -> float:
    return days * 86_400


database_url_option = click.option(
    "--database-url",
    envvar="MAINSPRING_DATABASE_URL",
    show_envvar=True,
    required=True,
    metavar="URL",
    help="PostgreSQL 14 or later, such as postgresql://user:password@host/name.",
)
log_option = click.option(
    "--log",
    "level",
    envvar="MAINSPRING_LOG",
    show_envvar=True,
    default="info",
    show_default=True,
    type=click.Choice(list(logs.LEVELS)),
    help="Lowest level to log.",
)


def _keep(noun: str, default: str, what: str) -> Callable[[F], F]:
    name = f"keep_{noun.replace('-', '_')}"
    return click.option(
        f"--keep-{noun}",
        f"{name}_s",
        envvar=f"MAINSPRING_{name.upper()}",
        show_envvar=True,
        default=default,
        show_default=True,
        type=_retention,
        metavar="DURATION",
        help=f"Retention of {what}.",
    )


_OPTIONS = (
    database_url_option,
    click.option(
        "--roles",
        envvar="MAINSPRING_ROLES",
        show_envvar=True,
        default="api,scheduler",
        show_default=True,
        type=parse_roles,
        metavar="ROLE,...",
        help="Roles of this process: api, scheduler or both.",
    ),
    click.option(
        "--host",
        envvar="MAINSPRING_HOST",
        show_envvar=True,
        default="127.0.0.1",
        show_default=True,
        help="Address to bind.",
    ),
    click.option(
        "--port",
        envvar="MAINSPRING_PORT",
        show_envvar=True,
        type=click.IntRange(0, 65535),
        metavar="PORT",
        help="Port of the API and the web UI. Without the role api: port of /healthz, /readyz and /metrics, which are"
        " not served by default.  [default: 7171]",
    ),
    click.option(
        "--session-lease",
        "session_lease_s",
        default=20.0,
        show_default=True,
        metavar="SECONDS",
        help="Time without a heartbeat after which a worker is lost.",
    ),
    click.option(
        "--shard-lease",
        "shard_lease_s",
        default=5.0,
        show_default=True,
        type=click.FloatRange(1, 60),
        metavar="SECONDS",
        help="Time after which a scheduler that hangs or is cut off loses its shards. One that exits or crashes loses"
        " them immediately.",
    ),
    _keep("dead-letters", "14d", "open dead letters"),
    _keep("runs", "90d", "finished workflow runs and backfills"),
    _keep("history", "90d", "finished executions, deleted by whole days"),
    _keep("output", "30d", "logs"),
    click.option(
        "--artifact-store",
        envvar="MAINSPRING_ARTIFACT_STORE",
        show_envvar=True,
        default=ARTIFACT_STORE,
        show_default=True,
        metavar="FOLDER|URL",
        help="Artifact storage, the same for all api processes: a folder, or s3://BUCKET/PREFIX with the extra `s3`.",
    ),
    click.option(
        "--artifact-limit",
        "artifact_bytes",
        default="1Gi",
        show_default=True,
        type=_size,
        metavar="SIZE",
        help="Total artifact size of one execution.",
    ),
    click.option(
        "--artifact-days",
        "artifact_kept_s",
        default=30.0,
        show_default=True,
        type=click.FloatRange(min=0, min_open=True),
        callback=_days,
        metavar="DAYS",
        help="Retention of artifacts.",
    ),
    click.option(
        "--allow-net",
        multiple=True,
        metavar="CIDR",
        envvar="MAINSPRING_ALLOW_NET",
        show_envvar=True,
        help="Private network that notifications may be sent to, such as 10.0.0.0/8. Repeatable.",
    ),
    click.option(
        "--rate-limit",
        envvar="MAINSPRING_RATE_LIMIT",
        show_envvar=True,
        default=10_000.0,
        show_default=True,
        type=click.FloatRange(min=0),
        metavar="N",
        help="Requests per second and token that each api process accepts, workers excepted. 0: unlimited.",
    ),
    click.option(
        "--schedule-quota",
        envvar="MAINSPRING_SCHEDULE_QUOTA",
        show_envvar=True,
        default=100_000,
        show_default=True,
        type=click.IntRange(min=0),
        metavar="N",
        help="Schedules that a token may create per hour. 0: unlimited.",
    ),
    click.option("--apprise", is_flag=True, help="Allow apprise channels. Their addresses are not checked."),
    log_option,
)


def server_settings(function: F) -> F:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function
