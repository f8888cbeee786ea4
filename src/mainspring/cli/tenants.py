"""`mainspring tenants`: create, list, edit, suspend, resume, export and delete tenants."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import UNSET

from mainspring import wire
from mainspring.cli.arguments import seconds
from mainspring.cli.confirm import confirm
from mainspring.cli.connect import connected
from mainspring.cli.group import Group
from mainspring.cli.output import Column, Output, TableLayout, echo
from mainspring.cli.private_file import write_private
from mainspring.cli.tokens import file_option, show_issued
from mainspring.codec import encode
from mainspring.domain.placement.resources import parse_amount

if TYPE_CHECKING:
    from mainspring.client import AsyncClient

TENANTS: TableLayout[wire.Tenant] = TableLayout(
    name=lambda tenant: tenant.name,
    columns=[
        Column("NAME", lambda tenant: tenant.name),
        Column("STATE", lambda tenant: "active" if tenant.suspended_at is None else "suspended"),
        Column("WEIGHT", lambda tenant: f"{tenant.weight:g}"),
        Column("ENTITLED", lambda tenant: f"{tenant.share.entitled:.0%}"),
        Column("USED", lambda tenant: f"{tenant.share.used:.0%}"),
        Column("RUNNING", lambda tenant: _of(tenant.share.running, tenant.cap)),
        Column("WAITING", lambda tenant: _of(tenant.share.waiting, tenant.max_queued)),
        Column("OUTPUT TODAY", lambda tenant: _of(tenant.output_today, tenant.output_per_day), wide=True),
        Column("MAX JOBS", lambda tenant: "-" if tenant.max_jobs is None else str(tenant.max_jobs), wide=True),
    ],
    empty="no tenants",
)


def _of(count: int, most: int | None) -> str:
    return str(count) if most is None else f"{count}/{most}"


def _number(text: str | None, pointer: str, kind: type[int] | type[float]) -> Any:
    """A limit as given: a number, `none` for no limit, UNSET if the option is missing."""
    if text is None:
        return UNSET
    if text == "none":
        return None
    try:
        return kind(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a number; `none` removes the limit", param_hint=pointer) from None


def _size(text: str | None) -> Any:
    """A size in bytes, or with a unit; `none` for no limit, UNSET if the option is missing."""
    if text is None or text == "none":
        return UNSET if text is None else None
    try:
        return parse_amount("disk", text)
    except ValueError as error:
        raise click.BadParameter(f"{error}; `none` removes the limit", param_hint="--output-per-day") from None


def _duration(text: str | None) -> Any:
    """A duration such as 30d; `none` for the server's, UNSET if the option is missing."""
    if text is None or text == "none":
        return UNSET if text is None else None
    return seconds(text)


def settings_options(function: Any) -> Any:
    for flag, help_text in (
        ("--keep-history", "Retention of finished executions, such as 30d, at most the server's; none: the server's."),
        ("--output-per-day", "Output stored per day, such as 10Gi; output beyond it is cut; none: any amount."),
        ("--end-required/--no-end-required", "Whether every schedule needs an end_at."),
        ("--min-interval", "Shortest interval between fires, in seconds; none: any."),
        ("--schedules-per-hour", "Schedules that each user may create per hour; none: the server's default."),
        ("--max-queued", "Most executions that have not started; none: any number."),
        ("--max-jobs", "Most jobs; none: any number."),
        ("--cap", "Most executions running at once; none: any number."),
        ("--weight", "Share of shared workers, relative to other tenants."),
    ):
        more: dict[str, Any] = {"default": None} if "/" in flag else {"metavar": "N"}
        function = click.option(flag, help=help_text, **more)(function)
    return function


def _settings(options: dict[str, Any]) -> dict[str, Any]:
    end = options["end_required"]
    return {
        "weight": _number(options["weight"], "--weight", float),
        "cap": _number(options["cap"], "--cap", int),
        "max_jobs": _number(options["max_jobs"], "--max-jobs", int),
        "max_queued": _number(options["max_queued"], "--max-queued", int),
        "schedules_per_hour": _number(options["schedules_per_hour"], "--schedules-per-hour", int),
        "min_interval_s": _number(options["min_interval"], "--min-interval", float),
        "end_required": UNSET if end is None else end,
        "output_per_day": _size(options["output_per_day"]),
        "keep_history_s": _duration(options["keep_history"]),
    }


@click.group(cls=Group)
def tenants() -> None:
    """Manage tenants. Needs a token of a cluster administrator."""


@tenants.command("create")
@click.argument("name")
@settings_options
@connected
async def create_tenant(client: AsyncClient, out: Output, /, name: str, **options: Any) -> None:
    """Create a tenant. Issue its first token with `mainspring tenants token`."""
    out.row(await client.create_tenant(wire.NewTenant(name=name, **_settings(options))), TENANTS)


@tenants.command("list")
@connected
async def list_tenants(client: AsyncClient, out: Output) -> None:
    """List tenants with their shares: entitled, used, waiting."""
    out.page(await client.tenants(limit=500), TENANTS)


@tenants.command("get")
@click.argument("name")
@connected
async def get_tenant(client: AsyncClient, out: Output, name: str) -> None:
    """Show a tenant."""
    out.row(await client.tenant(name), TENANTS)


@tenants.command("edit")
@click.argument("name")
@settings_options
@connected
async def edit_tenant(client: AsyncClient, out: Output, /, name: str, **options: Any) -> None:
    """Change weight, cap and quotas of a tenant."""
    out.row(await client.edit_tenant(name, wire.TenantSettings(**_settings(options))), TENANTS)


@tenants.command("suspend")
@click.argument("name")
@click.option("--reason", default="", metavar="TEXT", help="Reason, for the audit log and for its users.")
@connected
async def suspend_tenant(client: AsyncClient, out: Output, name: str, reason: str) -> None:
    """Suspend a tenant: its requests are refused, and nothing of it fires or starts."""
    out.row(await client.suspend_tenant(name, reason), TENANTS)


@tenants.command("resume")
@click.argument("name")
@connected
async def resume_tenant(client: AsyncClient, out: Output, name: str) -> None:
    """Resume a suspended tenant. Misfire policies decide about the fires that it missed."""
    out.row(await client.resume_tenant(name), TENANTS)


@tenants.command("export")
@click.argument("name")
@connected
async def export_tenant(client: AsyncClient, out: Output, name: str) -> None:
    """Print everything that defines a tenant as JSON: settings, manifests, users, roles, tokens without secrets."""
    exported = await client.export_tenant(name)
    if out.is_text:
        echo(encode(exported).decode())
    else:
        out.value(exported)


@tenants.command("delete")
@click.argument("name")
@click.option(
    "--export",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    metavar="FILE",
    help="Write an export of the tenant to this file first, mode 600.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@connected
async def delete_tenant(client: AsyncClient, out: Output, name: str, path: Path, yes: bool) -> None:
    """Export and delete a suspended tenant of which nothing runs. Its tokens stop working at once."""
    confirm(f"Delete the tenant {name}?", yes=yes)
    write_private(path, encode(await client.export_tenant(name)).decode())
    await client.delete_tenant(name)
    echo(f"deleted {name}; its export is in {path}", err=True)


@tenants.command("token")
@click.argument("tenant")
@click.argument("name")
@click.option("--role", default="admin", show_default=True, metavar="ROLE", help="Role of the token.")
@click.option("--expires", metavar="DURATION", help="Lifetime, such as 90d.  [default: unlimited]")
@file_option
@connected
async def issue_token(
    client: AsyncClient, out: Output, tenant: str, name: str, role: str, expires: str | None, path: Path | None
) -> None:
    """Issue a token in a tenant, such as the one of its first administrator. It is shown only once."""
    issued = await client.issue_tenant_token(tenant, wire.NewToken(name=name, role=role, expires_in=expires))
    show_issued(issued, out, path)
