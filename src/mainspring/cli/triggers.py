"""`mainspring triggers`: webhooks, files and other events that start jobs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import click
import msgspec

from mainspring import wire
from mainspring.cli.arguments import seconds
from mainspring.cli.command_options import limit_option, reason_option, yes_option
from mainspring.cli.confirm import confirm
from mainspring.cli.connect import connected, gather
from mainspring.cli.group import Group
from mainspring.cli.output import Column, Output, TableLayout, echo
from mainspring.cli.spec_options import pair, values
from mainspring.display.text import clean
from mainspring.display.times import local
from mainspring.domain.topic import TopicSource
from mainspring.domain.trigger import DELIVERY_OUTCOMES, CompletionSource, Source, TriggerSpec, WebhookSource
from mainspring.domain.watch import FilesSource
from mainspring.domain.webhook import example_curl

if TYPE_CHECKING:
    from mainspring.client import AsyncClient

F = TypeVar("F", bound=Callable[..., Any])
SCHEMES = ("github", "stripe", "standard", "generic")
MAX_SAMPLE_BYTES = 256_000

KINDS: dict[str, type[Source]] = {
    "webhook": WebhookSource,
    "after": CompletionSource,
    "place": FilesSource,
    "topic": TopicSource,
}
"""The kind of a source by the option that chooses it."""
STATE_COLORS = {"paused": "yellow", "failing": "red"}

TRIGGERS: TableLayout[wire.Trigger] = TableLayout(
    name=lambda trigger: trigger.name,
    columns=[
        Column("NAME", lambda trigger: trigger.name),
        Column("KIND", lambda trigger: trigger.kind),
        Column("STATE", lambda trigger: trigger.state, color=lambda t: STATE_COLORS.get(t.state)),
        Column("STARTS", lambda trigger: trigger.job),
        Column("SOURCE", lambda trigger: source_text(trigger.spec.source), wraps=True),
        Column("LAST DELIVERY", lambda trigger: delivery_text(trigger.last_delivery), wraps=True),
        Column("ERROR", lambda trigger: trigger.last_error or "", wraps=True, optional=True),
        Column("ADDRESS", lambda trigger: trigger.path or "", wide=True),
    ],
    empty="no triggers; add one with: mainspring triggers add NAME --job JOB --webhook github",
)
DELIVERIES: TableLayout[wire.TriggerDelivery] = TableLayout(
    name=lambda delivery: str(delivery.delivery_id),
    columns=[
        Column("WHEN", lambda delivery: local(delivery.received_at)),
        Column("OUTCOME", lambda d: d.outcome, color=lambda d: "red" if d.outcome == "refused" else None),
        Column("EVENT", lambda delivery: delivery.event or "", wraps=True),
        Column("EXECUTION", lambda delivery: str(delivery.execution_id or "")),
        Column("REASON", lambda delivery: delivery.reason or "", wraps=True),
        Column("REPEATS", lambda delivery: str(delivery.repeats), optional=True),
        Column("DELIVERY", lambda delivery: delivery.key, wide=True),
    ],
    empty="no deliveries",
)


def source_text(source: Source) -> str:
    """A source in a few words."""
    if isinstance(source, CompletionSource):
        return f"{source.after} ended: {', '.join(source.outcomes)}"
    if isinstance(source, FilesSource):
        return f"files {source.full_path(source.pattern)}"
    if isinstance(source, TopicSource):
        return f"topic {source.place}" + (f", {source.batch} at a time" if source.batch > 1 else "")
    return f"{source.scheme} webhook" + (f": {', '.join(source.events)}" if source.events else "")


def delivery_text(delivery: wire.TriggerDelivery | None) -> str:
    return "none" if delivery is None else f"{delivery.outcome} {local(delivery.received_at)}"


@click.group(cls=Group)
def triggers() -> None:
    """Manage triggers: webhooks, files, and ends of other jobs, that start a job or a workflow."""


@triggers.command("list")
@click.option("--job", metavar="JOB", help="Only those that start this job or workflow.")
@limit_option(100)
@connected
async def list_triggers(client: AsyncClient, out: Output, job: str | None, limit: int) -> None:
    """List triggers with their latest delivery."""

    async def fetch(n: int, cursor: str | None) -> wire.Page[wire.Trigger]:
        return await client.triggers(job=job, limit=n, cursor=cursor)

    out.page(await gather(fetch, limit), TRIGGERS)


@triggers.command
@click.argument("name")
@connected
async def get(client: AsyncClient, out: Output, name: str) -> None:
    """Show a trigger, its address, and a command that sends a signed example."""
    url = client.server.url
    out.one(await client.get_trigger(name), TRIGGERS, lambda trigger: details(trigger, url))


_HEADER = "Scheme generic: header with the "
_DEFINITION = (
    click.option("--job", metavar="JOB", help="Job or workflow to start."),
    click.option("--webhook", type=click.Choice(SCHEMES), help="Accept webhooks that are signed by this scheme."),
    click.option("--after", metavar="JOB", help="Start when an execution of this job or workflow ends."),
    click.option(
        "--on",
        "outcomes",
        multiple=True,
        type=click.Choice(["succeeded", "failed", "cancelled", "any"]),
        help="With --after: how it ends. Repeatable.  [default: succeeded]",
    ),
    click.option("--files", "place", metavar="FOLDER|URL", help="Start when a file arrives; s3://BUCKET/PREFIX."),
    click.option("--pattern", metavar="GLOB", help="With --files: which ones, such as **/*.csv.  [default: *]"),
    click.option(
        "--existing",
        type=click.Choice(["ignore", "start"]),
        help="With --files: those that are older than the trigger.  [default: ignore]",
    ),
    click.option("--interval", metavar="DURATION", help="With --files: time between two looks.  [default: 30s]"),
    click.option("--settle", metavar="DURATION", help="With --files: unchanged for this long.  [default: 10s]"),
    click.option("--topic", metavar="CLUSTER/TOPIC", help="Start when a message arrives in a topic of Kafka."),
    click.option(
        "--batch",
        metavar="N",
        type=click.IntRange(1, 1000),
        help="With --topic: most messages per execution.  [default: 1]",
    ),
    click.option("--within", metavar="DURATION", help="With --topic: longest wait for a batch.  [default: 1s]"),
    click.option(
        "--start",
        type=click.Choice(["latest", "earliest"]),
        help="With --topic: messages that are newer than the trigger, or all that are kept.  [default: latest]",
    ),
    click.option("--event", "events", multiple=True, metavar="EVENT", help="Event to accept. Repeatable."),
    click.option("--dedupe", type=click.Choice(["id", "body"]), help="Equal deliveries have the same id, or body."),
    click.option("--signature-header", metavar="NAME", help=f"{_HEADER}signature.  [default: x-signature-256]"),
    click.option("--timestamp-header", metavar="NAME", help=f"{_HEADER}timestamp.  [default: x-timestamp]"),
    click.option("--id-header", metavar="NAME", help=f"{_HEADER}id of the delivery."),
    click.option("--event-header", metavar="NAME", help=f"{_HEADER}name of the event."),
    click.option("--when", metavar="CEL", help="Condition, such as 'body.ref == \"refs/heads/main\"'."),
    click.option(
        "-p",
        "--param",
        "params",
        multiple=True,
        callback=values,
        metavar="KEY=VALUE",
        help="Parameter with templates, such as ref={{body.ref}}. Repeatable.",
    ),
    click.option(
        "--expression",
        "expressions",
        multiple=True,
        callback=pair,
        metavar="KEY=CEL",
        help="Parameter as an expression, such as n=size(body.commits). Repeatable.",
    ),
    click.option("--description", metavar="TEXT", help="Description."),
)


def definition_options(function: F) -> F:
    """The options of a definition, which `add` and `edit` share. One that is not given is None."""
    for option in reversed(_DEFINITION):
        function = option(function)
    return function


@triggers.command
@click.argument("name")
@definition_options
@click.option("--secret", metavar="SECRET", help="Secret of the sender; - prompts for it.  [default: a new one]")
@connected
async def add(client: AsyncClient, out: Output, /, name: str, secret: str | None, **given: Any) -> None:
    """Add a trigger. The secret is printed once.

    \b
    Examples:
      mainspring triggers add deploy --job deploy --webhook github --event push -p ref={{body.ref}}
      mainspring triggers add load --job load --after extract -p rows={{execution.result.rows}}
      mainspring triggers add paid --job invoice --webhook stripe --secret - --event invoice.paid
    """
    if given["job"] is None:
        raise click.UsageError("Missing option '--job'.")
    spec = changed(None, given)
    fields = {field: getattr(spec, field) for field in TriggerSpec.__struct_fields__}
    made = await client.add_trigger(wire.NewTrigger(name=name, secret=_asked(secret), **fields))
    out.one(made, TRIGGERS, lambda trigger: details(trigger, client.server.url))


@triggers.command
@click.argument("name")
@definition_options
@connected
async def edit(client: AsyncClient, out: Output, /, name: str, **given: Any) -> None:
    """Change a trigger: the given options. Its address, secrets and deliveries stay."""
    before = await client.get_trigger(name)
    found = await client.put_trigger(name, changed(before.spec, given))
    out.one(found, TRIGGERS, lambda trigger: details(trigger, client.server.url))


@triggers.command
@click.argument("name")
@reason_option
@connected
async def pause(client: AsyncClient, out: Output, name: str, reason: str) -> None:
    """Pause a trigger: deliveries start nothing."""
    out.one(await client.pause_trigger(name, reason=reason), TRIGGERS, _state)


@triggers.command
@click.argument("name")
@connected
async def resume(client: AsyncClient, out: Output, name: str) -> None:
    """Resume a paused trigger."""
    out.one(await client.resume_trigger(name), TRIGGERS, _state)


@triggers.command
@click.argument("name")
@yes_option
@connected
async def delete(client: AsyncClient, out: Output, name: str, yes: bool) -> None:
    """Delete a trigger with its deliveries; executions are kept."""
    confirm(f"Delete trigger {name}: what reaches it from then on starts nothing.", yes=yes)
    await client.delete_trigger(name)
    out.deleted(name)


@triggers.command
@click.argument("name")
@click.option("--secret", metavar="SECRET", help="Secret of the sender; - prompts for it.  [default: a new one]")
@click.option(
    "--overlap", type=seconds, default="24h", show_default=True, metavar="DURATION", help="Keep the previous one valid."
)
@connected
async def rotate(client: AsyncClient, out: Output, name: str, secret: str | None, overlap: float) -> None:
    """Replace the secret of a webhook. The new one is printed once."""
    found = await client.rotate_trigger(name, secret=_asked(secret), overlap=f"{overlap:g}s")
    out.one(found, TRIGGERS, lambda trigger: details(trigger, client.server.url))


@triggers.command
@click.argument("name")
@click.option("--outcome", type=click.Choice(DELIVERY_OUTCOMES), help="Outcome.")
@limit_option(20)
@connected
async def deliveries(client: AsyncClient, out: Output, name: str, outcome: str | None, limit: int) -> None:
    """List deliveries with their outcome and execution, newest first."""

    async def fetch(n: int, cursor: str | None) -> wire.Page[wire.TriggerDelivery]:
        return await client.trigger_deliveries(name, outcome=outcome, limit=n, cursor=cursor)

    out.page(await gather(fetch, limit), DELIVERIES)


@triggers.command
@click.argument("name")
@click.option("--body", metavar="JSON", help="Sample body, or file of --files; @FILE reads it from a file.")
@click.option("--header", "headers", multiple=True, callback=pair, metavar="NAME=VALUE", help="Header. Repeatable.")
@click.option("--event", metavar="EVENT", help="Name of the event.")
@click.option("--execution", type=click.UUID, metavar="ID", help="An ended execution, for --after.")
@connected
async def test(
    client: AsyncClient,
    out: Output,
    name: str,
    body: str | None,
    headers: dict[str, str],
    event: str | None,
    execution: UUID | None,
) -> None:
    """Show what a sample would lead to. Nothing is started. Exit code 1 if it would start nothing."""
    sample = wire.TriggerSample(body=_sample(body), headers=headers, event=event, execution_id=execution)
    found = await client.test_trigger(name, sample)
    if not out.is_text:
        out.value(found)
    elif found.outcome == "started":
        echo(clean(f"✔ starts {found.job} with {msgspec.json.encode(found.params or {}).decode()}"))
    else:
        echo(clean(f"✖ {found.outcome}: {found.reason}"))
    if found.outcome != "started":
        raise click.exceptions.Exit(1)


def changed(before: TriggerSpec | None, given: dict[str, Any]) -> TriggerSpec:
    """The definition that results from options; those that are not given keep what was there."""
    fields = {name: given[name] for name in ("job", "when", "description") if given[name] is not None}
    fields |= {name: given[name] for name in ("params", "expressions") if given[name]}
    source = _source(None if before is None else before.source, given)
    if before is None:
        return TriggerSpec(source=source, **fields)
    return msgspec.structs.replace(before, source=source, **fields)


def _source(before: Source | None, given: dict[str, Any]) -> Source:
    kinds = [kind for option, kind in KINDS.items() if given[option] is not None]
    if len(kinds) > 1:
        raise click.UsageError("--webhook, --after, --files and --topic exclude each other.")
    if before is not None and kinds and not isinstance(before, kinds[0]):
        raise click.UsageError("A trigger keeps its kind: delete it, and add another one.")
    if given["after"] is not None or isinstance(before, CompletionSource):
        return _completion(before, given)
    if given["place"] is not None or isinstance(before, FilesSource):
        return _files(before, given)
    if given["topic"] is not None or isinstance(before, TopicSource):
        return _topic(before, given)
    names = ("dedupe", "signature_header", "timestamp_header", "id_header", "event_header")
    fields = {name: given[name] for name in names if given[name] is not None}
    fields |= {"events": list(given["events"])} if given["events"] else {}
    fields |= {"scheme": given["webhook"]} if given["webhook"] is not None else {}
    if before is None and given["webhook"] is None:
        raise click.UsageError(
            "Say what starts the job: --webhook SCHEME, --after JOB, --files FOLDER or --topic TOPIC."
        )
    return msgspec.structs.replace(before, **fields) if isinstance(before, WebhookSource) else WebhookSource(**fields)


def _completion(before: Source | None, given: dict[str, Any]) -> CompletionSource:
    fields = {"after": given["after"]} if given["after"] is not None else {}
    fields |= {"outcomes": tuple(given["outcomes"])} if given["outcomes"] else {}
    if not isinstance(before, CompletionSource):
        return CompletionSource(**fields)
    return msgspec.structs.replace(before, **fields)


def _files(before: Source | None, given: dict[str, Any]) -> FilesSource:
    names = ("place", "pattern", "existing", "interval", "settle")
    fields = {name: given[name] for name in names if given[name] is not None}
    return msgspec.structs.replace(before, **fields) if isinstance(before, FilesSource) else FilesSource(**fields)


def _topic(before: Source | None, given: dict[str, Any]) -> TopicSource:
    fields = {name: given[name] for name in ("batch", "within", "start") if given[name] is not None}
    if given["topic"] is not None:
        fields["cluster"], slash, fields["topic"] = given["topic"].partition("/")
        if not slash:
            raise click.UsageError("--topic: write CLUSTER/TOPIC, with the name that the operator gave to the cluster.")
    return msgspec.structs.replace(before, **fields) if isinstance(before, TopicSource) else TopicSource(**fields)


def details(trigger: wire.Trigger, url: str) -> str:
    """A trigger for a reader: its address, its secret if it is new, and an example."""
    lines = [f"{trigger.name}: {trigger.state}, {source_text(trigger.spec.source)}, starts {trigger.job}"]
    if trigger.spec.when is not None:
        lines.append(f"when       {trigger.spec.when}")
    mapped = {**trigger.spec.params, **{name: f"= {text}" for name, text in trigger.spec.expressions.items()}}
    lines += [f"param      {name}: {value}" for name, value in mapped.items()]
    if trigger.previous_secret_until is not None:
        lines.append(f"previous secret valid until {local(trigger.previous_secret_until)}")
    lines.append(f"delivery   {delivery_text(trigger.last_delivery)}")
    lines += _look_lines(trigger)
    if trigger.last_rejected_at is not None:
        lines.append(f"rejected   {local(trigger.last_rejected_at)}: {trigger.last_rejection}")
    source = trigger.spec.source
    if trigger.path is not None and isinstance(source, WebhookSource):
        address = f"{url.rstrip('/')}{trigger.path}"
        lines.append(f"address    {address}")
        if trigger.secret is not None:
            lines.append(f"secret     {trigger.secret}   (shown only now)")
        lines += ["", "Send a signed example:", ""]
        lines += example_curl(source.scheme, address, names=source.names).split("\n")
    return "\n".join(map(clean, lines))


def _look_lines(trigger: wire.Trigger) -> list[str]:
    """When a trigger that watches files looks, and what it could not read."""
    source = trigger.spec.source
    if not isinstance(source, FilesSource):
        return []
    looked = "not yet" if trigger.looked_at is None else local(trigger.looked_at)
    ahead = "" if trigger.next_look_at is None else f", next {local(trigger.next_look_at)}"
    lines = [f"looked     {looked}{ahead}"]
    if trigger.last_error is not None and trigger.last_error_at is not None:
        lines.append(f"error      since {local(trigger.last_error_at)}: {trigger.last_error}")
    return lines


def _state(trigger: wire.Trigger) -> str:
    return clean(f"{trigger.name}: {trigger.state}")


def _asked(secret: str | None) -> str | None:
    """Prompt for `-`: other users of the machine can see secrets on a command line."""
    return str(click.prompt("Secret", hide_input=True, err=True)) if secret == "-" else secret


def _sample(text: str | None) -> Any:
    if text is None:
        return None
    if text.startswith("@"):
        path = Path(text[1:])
        if not path.is_file() or path.stat().st_size > MAX_SAMPLE_BYTES:
            raise click.UsageError(f"{text[1:]!r} is not a file of at most {MAX_SAMPLE_BYTES:,} bytes.")
        text = path.read_text(encoding="utf-8")
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise click.UsageError(f"--body is not JSON: {error}") from None
