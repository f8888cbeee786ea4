"""Server configuration: environment variables, roles, and frozen values for each process."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from mainspring.domain.costs import ALWAYS, NO_PRICES, Prices, PriceWindows
from mainspring.domain.errors import Invalid
from mainspring.domain.issuer import Issuer

Role = Literal["api", "scheduler"]
ROLES: tuple[Role, ...] = get_args(Role)

PREFIX = "MAINSPRING_"
ARTIFACT_STORE = ".mainspring/artifacts"
ENVIRONMENT = (
    "MAINSPRING_ALLOW_NET",
    "MAINSPRING_ARCHIVE_AFTER",
    "MAINSPRING_ARCHIVE_URL",
    "MAINSPRING_ARTIFACT_STORE",
    "MAINSPRING_BUS",
    "MAINSPRING_CONFIG",
    "MAINSPRING_CONNECTIONS_PER_ADDRESS",
    "MAINSPRING_CACHE",
    "MAINSPRING_COORDINATOR",
    "MAINSPRING_DATABASE_URL",
    "MAINSPRING_DATABASE_URL_FILE",
    "MAINSPRING_DELAYS",
    "MAINSPRING_DIRECT_DATABASE_URL",
    "MAINSPRING_DIRECT_DATABASE_URL_FILE",
    "MAINSPRING_ENGINE",
    "MAINSPRING_FIRE_LOCK",
    "MAINSPRING_HEALTH_HOST",
    "MAINSPRING_HEALTH_PORT",
    "MAINSPRING_HOST",
    "MAINSPRING_ISSUER_FILE",
    "MAINSPRING_KEEP_ARCHIVE",
    "MAINSPRING_KEEP_DEAD_LETTERS",
    "MAINSPRING_KEEP_HISTORY",
    "MAINSPRING_KEEP_OUTPUT",
    "MAINSPRING_KEEP_RUNS",
    "MAINSPRING_KUBE_ALLOW",
    "MAINSPRING_KUBE_CONTEXT",
    "MAINSPRING_KUBE_NAMESPACE",
    "MAINSPRING_LOG",
    "MAINSPRING_OTLP_ENDPOINT",
    "MAINSPRING_PASS_ENV",
    "MAINSPRING_PG_AS",
    "MAINSPRING_PG_BIN",
    "MAINSPRING_MIN_ISOLATION",
    "MAINSPRING_POLL",
    "MAINSPRING_PORT",
    "MAINSPRING_RATE_LIMIT",
    "MAINSPRING_RATE_LIMITER",
    "MAINSPRING_REPLICA_MAX_LAG",
    "MAINSPRING_REPLICA_URL",
    "MAINSPRING_REPLICA_URL_FILE",
    "MAINSPRING_RESULTS",
    "MAINSPRING_ROLES",
    "MAINSPRING_SCHEDULE_QUOTA",
    "MAINSPRING_SECRET_KEY",
    "MAINSPRING_SECRET_KEY_FILE",
    "MAINSPRING_SECRET_PROVIDERS",
    "MAINSPRING_SERVER_DATABASE_URL",
    "MAINSPRING_SERVER_DATABASE_URL_FILE",
    "MAINSPRING_PRICES",
    "MAINSPRING_PRICE_WINDOWS",
    "MAINSPRING_PUBLIC_URL",
    "MAINSPRING_STREAMS_PER_TOKEN",
    "MAINSPRING_TENANT_DATABASE_URL",
    "MAINSPRING_TENANT_DATABASE_URL_FILE",
    "MAINSPRING_TLS_CERT",
    "MAINSPRING_TLS_CLIENT_CA",
    "MAINSPRING_TLS_KEY",
    "MAINSPRING_TOKEN",
    "MAINSPRING_TOKEN_FILE",
    "MAINSPRING_TRACE_URL",
    "MAINSPRING_TRUSTED_PROXY",
    "MAINSPRING_URL",
    "MAINSPRING_WATCH_ROOT",
    "MAINSPRING_EVENTS",
    "MAINSPRING_EVENT_TYPES",
    "MAINSPRING_EVENTS_WAITING",
    "MAINSPRING_QUEUE",
    "MAINSPRING_KAFKA_TRIGGERS",
    "MAINSPRING_TRIGGER_TOPIC",
)
ENVIRONMENT_ONLY = {
    "MAINSPRING_URL": "Address of the server, for the CLI, the SDK and workers.",
    "MAINSPRING_TOKEN": "API token, for the CLI, the SDK and workers.",
    "MAINSPRING_SECRET_KEY": "Content of a key file, for a server whose master keys are not in a file.",
    "MAINSPRING_PG_BIN": "Folder with the PostgreSQL programs that `mainspring dev` uses instead of the bundled ones.",
    "MAINSPRING_PG_AS": "How `mainspring dev` starts PostgreSQL as root: `namespace` or `user`. Tries both by default.",
}
"""Variables without a command-line option."""

PORT = 7171


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """Configuration of one server process."""

    database_url: str
    tenant_database_url: str | None = None  # of a role that sees one tenant at a time; None: requests use database_url
    direct_database_url: str | None = None  # for what needs a session; None: database_url keeps sessions
    replica_url: str | None = None  # a standby that answers lists, history and statistics
    replica_max_lag_s: float = 5.0
    roles: tuple[Role, ...] = ROLES
    host: str = "127.0.0.1"
    port: int | None = None  # None: PORT for a process with the API, no HTTP otherwise
    health_host: str = "127.0.0.1"
    health_port: int | None = None  # None: health is served on `port` only, by the event loop
    session_lease_s: float = 20.0
    shard_lease_s: float = 5.0
    keep_dead_letters_s: float = 14 * 86_400.0
    keep_runs_s: float = 90 * 86_400.0
    keep_history_s: float = 90 * 86_400.0
    keep_output_s: float = 30 * 86_400.0
    archive_url: str | None = None  # None: old history and output are deleted, not archived
    archive_after_s: float = 30 * 86_400.0
    keep_archive_s: float | None = None  # None: unlimited
    artifact_store: str = ARTIFACT_STORE
    artifact_bytes: int = 1 << 30
    artifact_kept_s: float = 30 * 86_400.0
    allow_net: tuple[str, ...] = ()
    apprise: bool = False
    public_url: str = ""  # address of the web UI for links in notifications; empty: no links
    trace_url: str = ""  # address of a trace in a tracing UI, with {trace_id}; empty: no links
    rate_limit: float = 10_000.0  # requests per second and token; 0: unlimited
    schedule_quota: int = 100_000  # schedules that a token may create per hour; 0: unlimited
    trusted_proxies: tuple[str, ...] = ()  # networks whose X-Forwarded-For and X-Forwarded-Proto count
    connections_per_address: int = 1_000  # that have not authenticated
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_client_ca: str | None = None  # workers must show a certificate of this authority
    secret_key_file: str | None = None
    secret_key_fd: int | None = None
    issuers: tuple[Issuer, ...] = ()  # identity providers whose JWTs are accepted
    secret_providers: str | None = None  # file that names the providers of secrets
    streams_per_token: int = 100  # live streams open at once; 0: unlimited
    bus: str | None = None  # URL of the engine that carries wake-ups; None: PostgreSQL
    watch_roots: tuple[str, ...] = ()  # folders and stores that triggers may watch: PLACE, TENANT=PLACE or *=PLACE
    cache: str | None = None  # URL of the engine with the cache that api processes share; None: one per process
    rate_limiter: str | None = None  # URL of the engine that counts requests for all api processes; None: per process
    delays: str | None = None  # URL of the engine with due instants that were read ahead; None: PostgreSQL
    fire_lock: str | None = None  # URL of the engine that locks each instant of a schedule; None: shard rows alone
    prices: Prices = NO_PRICES  # of worker time, for the cost report
    price_windows: PriceWindows = ALWAYS  # when they differ: for the cost report, and to place flexible jobs
    otlp_endpoint: str | None = None  # where spans are sent; None: none are made
    results: str | None = None  # URL of the engine that keeps results while the database is unavailable
    kafka_triggers: tuple[str, ...] = ()  # clusters whose topics triggers may read: NAME=URL
    trigger_topics: tuple[str, ...] = ()  # the topics that they may read: [TENANT=]CLUSTER/PATTERN
    queue: str | None = None  # URL of the engine that carries queued executions; None: PostgreSQL
    events: str | None = None  # URL of the engine that receives every event of the outbox; None: none does
    event_types: Literal["all", "ends"] = "all"  # `ends`: without those before the end of an attempt
    events_waiting: int = 1_000_000  # events kept while that engine is unavailable
    coordinator: str | None = None  # URL of the engine that knows which schedulers are alive; None: PostgreSQL


def parse_roles(text: str) -> tuple[Role, ...]:
    """Parse a list of roles such as `api,scheduler`."""
    roles: list[Role] = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        match = next((role for role in ROLES if role == word), None)
        if match is None:
            close = difflib.get_close_matches(word, ROLES, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known roles: {', '.join(ROLES)}"
            raise Invalid(f"unknown role {word!r}; {hint}")
        roles.append(match)
    if not roles:
        raise Invalid(f"no role given; use at least one of {', '.join(ROLES)}")
    return tuple(dict.fromkeys(roles))


def unknown_settings(environment: Mapping[str, str]) -> list[str]:
    """Return a warning for each unknown MAINSPRING_ variable, which is most likely misspelled."""
    found = []
    known = [name.removeprefix(PREFIX) for name in ENVIRONMENT]
    for name in sorted(environment):
        if name.startswith(PREFIX) and name not in ENVIRONMENT:
            close = difflib.get_close_matches(name.removeprefix(PREFIX), known, n=1)
            found.append(f"{name} is not a known setting" + (f"; did you mean {PREFIX}{close[0]}?" if close else ""))
    return found
