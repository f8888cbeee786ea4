"""The options of `mainspring serve`. Each is a field of ServeConfig, except the log level."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from mainspring.cli.arguments import seconds
from mainspring.cli.config_file import FOUND, ISSUERS, ConfigFile, config_option, parse
from mainspring.cli.engine_settings import ENGINE_OPTIONS
from mainspring.cli.private_file import read_private
from mainspring.config import ARTIFACT_STORE, parse_roles
from mainspring.domain.costs import read_price_windows, read_prices
from mainspring.domain.errors import Invalid
from mainspring.domain.issuer import Issuer, read_issuers
from mainspring.domain.placement.resources import parse_amount
from mainspring.domain.watch import read_roots
from mainspring.telemetry import logs
from mainspring.telemetry.spans import check_endpoint

F = TypeVar("F", bound=Callable[..., Any])
_URL_FILE = "mainspring.url_file"


def retention(text: str) -> float:
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


_URL_SOURCES = (
    ParameterSource.DEFAULT,
    ParameterSource.DEFAULT_MAP,
    ParameterSource.ENVIRONMENT,
    ParameterSource.COMMANDLINE,
)
"""From the weakest to the strongest."""


def _url_of(name: str, *, required: bool) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    """Return the callback of a URL that may also be the content of a file, if that was given at least as explicitly."""

    def resolve(context: click.Context, parameter: click.Parameter, url: str | None) -> str | None:
        file: Path | None = context.meta.get(f"{_URL_FILE}.{name}")
        rank = _URL_SOURCES.index(context.get_parameter_source(name) or ParameterSource.DEFAULT)
        file_rank = _URL_SOURCES.index(context.get_parameter_source(f"{name}_file") or ParameterSource.DEFAULT)
        if url is None and file is None:
            if required:
                raise click.MissingParameter(ctx=context, param=parameter)
            return None
        if url is not None and file is not None and rank == file_rank:
            option = f"--{name.replace('_', '-')}"
            raise click.UsageError(f"{option} and {option}-file exclude each other")
        if file is not None and (url is None or file_rank > rank):
            url = read_private(file, "database URL")
        assert url is not None
        if not url.startswith(("postgresql://", "postgres://")):
            raise Invalid(
                "the database URL must begin with postgresql://, such as postgresql://user:password@host/name"
            )
        return url

    return resolve


def _url_option(name: str, help: str, *, required: bool = False) -> Callable[[F], F]:
    """Add an option for the URL of a database, and one for a file with it; the function gets `name`."""

    def keep_file(context: click.Context, _parameter: click.Parameter, file: Path | None) -> None:
        context.meta[f"{_URL_FILE}.{name}"] = file

    def add(function: F) -> F:
        option, variable = f"--{name.replace('_', '-')}", f"MAINSPRING_{name.upper()}"
        function = click.option(
            option,
            envvar=variable,
            show_envvar=True,
            metavar="URL",
            callback=_url_of(name, required=required),
            help=help,
        )(function)
        return click.option(
            f"{option}-file",
            type=click.Path(dir_okay=False, path_type=Path),
            envvar=f"{variable}_FILE",
            show_envvar=True,
            is_eager=True,
            expose_value=False,
            callback=keep_file,
            metavar="FILE",
            help=f"File with the URL of {option}, which other users must not be able to read.",
        )(function)

    return add


def database_url_option(function: F) -> F:
    """Add --config, --database-url and --database-url-file; the function gets `database_url`."""
    help = "PostgreSQL 14 or later, such as postgresql://user:password@host/name. Required, here or in a file."
    return config_option(_url_option("database_url", help, required=True)(function))


tenant_database_url_option = _url_option(
    "tenant_database_url",
    "The same database with a role that sees one tenant at a time: requests use it. Needs PostgreSQL 15.",
)
direct_database_url_option = _url_option(
    "direct_database_url",
    "The same database without PgBouncer, if --database-url leads through it in transaction mode: for LISTEN, session"
    " locks and migrations.",
)
replica_url_option = _url_option(
    "replica_url",
    "A standby that answers lists, history and statistics, with the role of --tenant-database-url if there is one.",
)
server_database_url_option = _url_option(
    "server_database_url", "The same database with the role of servers, which owns nothing."
)


def session_url_option(function: F) -> F:
    """Like `database_url_option`, but `database_url` is that of --direct-database-url if that is as explicit."""

    @wraps(function)
    def run(*args: Any, database_url: str, direct_database_url: str | None, **more: Any) -> Any:
        context = click.get_current_context()
        rank, direct_rank = (_rank(context, name) for name in ("database_url", "direct_database_url"))
        url = direct_database_url if direct_database_url is not None and direct_rank >= rank else database_url
        return function(*args, database_url=url, **more)

    return database_url_option(direct_database_url_option(cast(F, run)))


def _rank(context: click.Context, name: str) -> int:
    """How explicitly a URL or its file is given."""
    sources = (context.get_parameter_source(each) for each in (name, f"{name}_file"))
    return max(_URL_SOURCES.index(source or ParameterSource.DEFAULT) for source in sources)


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


TRACE_ID = "{trace_id}"
"""Stands for the id of a trace in --trace-url."""
otlp_option = click.option(
    "--otlp-endpoint",
    envvar="MAINSPRING_OTLP_ENDPOINT",
    show_envvar=True,
    metavar="URL",
    callback=lambda _context, _parameter, value: check_endpoint(value),
    help="OpenTelemetry collector that receives spans over OTLP/HTTP, such as http://localhost:4318, with the extra"
    " `otel`.  [default: no spans]",
)


def health_options(function: F) -> F:
    """Add --health-port and --health-host."""
    function = click.option(
        "--health-host",
        envvar="MAINSPRING_HEALTH_HOST",
        show_envvar=True,
        default="127.0.0.1",
        show_default=True,
        metavar="HOST",
        help="Address to bind for --health-port; 0.0.0.0 for probes from other machines.",
    )(function)
    return click.option(
        "--health-port",
        envvar="MAINSPRING_HEALTH_PORT",
        show_envvar=True,
        type=click.IntRange(0, 65535),
        metavar="PORT",
        help="Port of /healthz and /readyz, served by a thread of its own that also reports a stuck event loop.",
    )(function)


def _keep(noun: str, default: str, what: str) -> Callable[[F], F]:
    name = f"keep_{noun.replace('-', '_')}"
    return click.option(
        f"--keep-{noun}",
        f"{name}_s",
        envvar=f"MAINSPRING_{name.upper()}",
        show_envvar=True,
        default=default,
        show_default=True,
        type=retention,
        metavar="DURATION",
        help=f"Retention of {what}.",
    )


_RETENTION = (
    _keep("dead-letters", "14d", "open dead letters"),
    _keep("runs", "90d", "finished workflow runs and backfills"),
    _keep("history", "90d", "finished executions, deleted by whole days"),
    _keep("output", "30d", "logs"),
)


archive_after_option = click.option(
    "--archive-after",
    "archive_after_s",
    envvar="MAINSPRING_ARCHIVE_AFTER",
    show_envvar=True,
    default="30d",
    show_default=True,
    type=retention,
    metavar="DURATION",
    help="Age at which whole days of history and output move to the archive.",
)


def archive_url_option(*, required: bool = False) -> Callable[[F], F]:
    """Add --archive-url."""
    return click.option(
        "--archive-url",
        envvar="MAINSPRING_ARCHIVE_URL",
        show_envvar=True,
        required=required,
        metavar="FOLDER|URL",
        help="Archive of old history and output, the same for all processes: a folder, or s3://BUCKET/PREFIX. Needs the"
        " extra `archive`, and for S3 the extra `s3`. Nothing is deleted before it is archived."
        + ("" if required else "  [default: no archive]"),
    )


_ARCHIVE = (
    archive_url_option(),
    archive_after_option,
    click.option(
        "--keep-archive",
        "keep_archive_s",
        envvar="MAINSPRING_KEEP_ARCHIVE",
        show_envvar=True,
        type=retention,
        metavar="DURATION",
        help="Retention of archived days.  [default: unlimited]",
    ),
)


def retention_options(function: F) -> F:
    """Add --keep-dead-letters, --keep-runs, --keep-history and --keep-output."""
    for option in reversed(_RETENTION):
        function = option(function)
    return function


def check_public_url(_: click.Context, __: click.Parameter, value: str) -> str:
    """Refuse an address that browsers cannot open; a slash at the end is removed."""
    parts = urlsplit(value)
    if value and (parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment):
        raise click.BadParameter(f"{value!r} is not an address: write https://HOST, without query")
    return value.rstrip("/")


def check_trace_url(_: click.Context, __: click.Parameter, value: str) -> str:
    """Refuse an address that browsers cannot open, or that is the same for every trace."""
    parts = urlsplit(value)
    if value and (parts.scheme not in ("http", "https") or not parts.hostname or TRACE_ID not in value):
        raise click.BadParameter(f"{value!r}: write an address with {TRACE_ID}, such as https://HOST/trace/{TRACE_ID}")
    return value


def check_watch_roots(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    read_roots(values)
    return values


def _issuers(context: click.Context, _: click.Parameter, file: Path | None) -> tuple[Issuer, ...]:
    """The issuers of the configuration file, and of --issuer-file."""
    config: ConfigFile | None = context.meta.get(FOUND)
    tables = {} if config is None else dict(config.issuers)
    if file is not None:
        content = parse(file)
        if others := content.keys() - {ISSUERS}:
            raise Invalid(f"{file}: unknown table or setting {min(others)}; write [issuers.NAME]")
        tables |= content.get(ISSUERS, {})
    return read_issuers(tables, str(file or (config and config.path)))


_OPTIONS = (
    database_url_option,
    direct_database_url_option,
    tenant_database_url_option,
    replica_url_option,
    click.option(
        "--replica-max-lag",
        "replica_max_lag_s",
        envvar="MAINSPRING_REPLICA_MAX_LAG",
        show_envvar=True,
        default=5.0,
        show_default=True,
        type=click.FloatRange(0.5, 3600),
        metavar="SECONDS",
        help="How far the replica may be behind; the primary answers while it is further behind or down.",
    ),
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
    health_options,
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
    *_RETENTION,
    *_ARCHIVE,
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
    *ENGINE_OPTIONS,
    click.option(
        "--allow-net",
        multiple=True,
        metavar="CIDR",
        envvar="MAINSPRING_ALLOW_NET",
        show_envvar=True,
        help="Private network that notifications may be sent to, such as 10.0.0.0/8. Repeatable.",
    ),
    click.option(
        "--watch-root",
        "watch_roots",
        multiple=True,
        metavar="[TENANT=]PLACE",
        envvar="MAINSPRING_WATCH_ROOT",
        show_envvar=True,
        callback=check_watch_roots,
        help="Folder, or s3://BUCKET/PREFIX with the extra `s3`, in which triggers may look for files: those of the"
        " first tenant, of TENANT, or with *= of all. The same for all scheduler processes. Repeatable.",
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
    click.option(
        "--trusted-proxy",
        "trusted_proxies",
        multiple=True,
        metavar="CIDR",
        envvar="MAINSPRING_TRUSTED_PROXY",
        show_envvar=True,
        help="Network of proxies whose X-Forwarded-For and X-Forwarded-Proto count, such as 10.0.0.0/8. Repeatable.",
    ),
    click.option(
        "--connections-per-address",
        envvar="MAINSPRING_CONNECTIONS_PER_ADDRESS",
        show_envvar=True,
        default=1_000,
        show_default=True,
        type=click.IntRange(min=1),
        metavar="N",
        help="Connections of one address that have not authenticated, at most a quarter of the open file limit.",
    ),
    click.option(
        "--tls-cert",
        envvar="MAINSPRING_TLS_CERT",
        show_envvar=True,
        metavar="FILE",
        help="Certificate with its chain, in PEM: serve HTTPS. Loaded again when the file changes.",
    ),
    click.option(
        "--tls-key",
        envvar="MAINSPRING_TLS_KEY",
        show_envvar=True,
        metavar="FILE",
        help="Key of the certificate, in PEM.",
    ),
    click.option(
        "--tls-client-ca",
        envvar="MAINSPRING_TLS_CLIENT_CA",
        show_envvar=True,
        metavar="FILE",
        help="Authority, in PEM, of the certificates that workers must show.",
    ),
    click.option(
        "--secret-key-file",
        envvar="MAINSPRING_SECRET_KEY_FILE",
        show_envvar=True,
        metavar="FILE",
        help="File with the master keys of secrets; see `mainspring secrets new-key`.",
    ),
    click.option(
        "--secret-key-fd",
        type=click.IntRange(min=3),
        metavar="N",
        help="Open file descriptor to read the master keys from, instead of a file.",
    ),
    click.option(
        "--secret-providers",
        envvar="MAINSPRING_SECRET_PROVIDERS",
        show_envvar=True,
        metavar="FILE",
        help="File with the providers of secrets, and the paths that each tenant may refer to.",
    ),
    click.option(
        "--streams-per-token",
        envvar="MAINSPRING_STREAMS_PER_TOKEN",
        show_envvar=True,
        default=100,
        show_default=True,
        type=click.IntRange(min=0),
        metavar="N",
        help="Live streams that a token may have open at each api process, worker streams excepted. 0: unlimited.",
    ),
    click.option(
        "--public-url",
        envvar="MAINSPRING_PUBLIC_URL",
        show_envvar=True,
        default="",
        metavar="URL",
        callback=check_public_url,
        help="Address of the web UI, such as https://jobs.example.com, for links in notifications and for sign-in at an"
        " identity provider.",
    ),
    click.option(
        "--trace-url",
        envvar="MAINSPRING_TRACE_URL",
        show_envvar=True,
        default="",
        metavar="URL",
        callback=check_trace_url,
        help="Address of a trace in your tracing UI, such as https://tempo.example.com/trace/{trace_id}: pages of"
        " executions link to it.",
    ),
    click.option(
        "--issuer-file",
        "issuers",
        type=click.Path(dir_okay=False, path_type=Path),
        envvar="MAINSPRING_ISSUER_FILE",
        show_envvar=True,
        metavar="FILE",
        callback=_issuers,
        help="TOML file with tables [issuers.NAME]: identity providers whose JWTs are accepted, besides those of the"
        " configuration file.",
    ),
    click.option(
        "--prices",
        envvar="MAINSPRING_PRICES",
        show_envvar=True,
        default="",
        type=read_prices,
        metavar="NAME=PRICE,...",
        help="Prices per hour for the cost report: of a slot, a core (cpu), a GiB (memory, disk), one of another"
        " resource, such as slot=0.01,cpu=0.03,currency=EUR.",
    ),
    click.option(
        "--price-windows",
        envvar="MAINSPRING_PRICE_WINDOWS",
        show_envvar=True,
        default="",
        type=read_price_windows,
        metavar="WINDOW=FACTOR;...",
        help="When prices differ, such as 'timezone=Europe/Berlin; 22:00-06:00=0.4; sat-sun 00:00-24:00=0.5'."
        " Flexible jobs start in the cheapest part of their windows.",
    ),
    click.option("--apprise", is_flag=True, help="Allow apprise channels. Their addresses are not checked."),
    otlp_option,
    log_option,
)


def server_settings(function: F) -> F:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function
