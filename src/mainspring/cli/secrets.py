"""`mainspring secrets`: values for jobs and channels, encrypted, and the master keys that protect them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from mainspring import wire
from mainspring.cli.command_options import yes_option
from mainspring.cli.confirm import confirm
from mainspring.cli.connect import connected, gather
from mainspring.cli.group import Group
from mainspring.cli.output import Column, Output, TableLayout, aligned, echo
from mainspring.display.times import local
from mainspring.domain.errors import Invalid
from mainspring.domain.secret import MAX_VALUE_CHARS

if TYPE_CHECKING:
    from mainspring.client import AsyncClient

SECRETS: TableLayout[wire.Secret] = TableLayout(
    name=lambda secret: secret.name,
    columns=[
        Column("NAME", lambda secret: secret.name),
        Column("VERSION", lambda secret: str(secret.version)),
        Column("JOBS", lambda secret: ", ".join(secret.jobs) or "none", wraps=True),
        Column("HOSTS", lambda secret: ", ".join(secret.hosts) or "not limited", wraps=True),
        Column("CHANGED", lambda secret: local(secret.updated_at)),
        Column("LAST USED", lambda secret: local(secret.last_used_at) if secret.last_used_at else "never"),
        Column("QUEUES", lambda secret: ", ".join(secret.queues) or "all", wide=True, wraps=True),
        Column("CHANNELS", lambda secret: ", ".join(secret.channels) or "none", wide=True, wraps=True),
        Column("TRIGGERS", lambda secret: ", ".join(secret.triggers) or "none", wide=True, wraps=True),
        Column("PROVIDER", lambda secret: secret.provider or "–", wide=True),
        Column("KEY", lambda secret: secret.key_id or "–", wide=True),
        Column("BY", lambda secret: secret.updated_by, wide=True),
    ],
    empty="no secrets; create one with: mainspring secrets set NAME --job 'etl-*' < FILE",
)


@click.group(cls=Group)
def secrets() -> None:
    """Manage secrets. Jobs refer to one as secret://NAME; no command prints a value."""


@secrets.command("list")
@connected
async def list_secrets(client: AsyncClient, out: Output) -> None:
    """List secrets, without their values."""
    out.page(await gather(lambda count, cursor: client.secrets(limit=count, cursor=cursor), 10_000), SECRETS)


@secrets.command
@click.argument("name")
@connected
async def get(client: AsyncClient, out: Output, name: str) -> None:
    """Show a secret without its value."""
    out.one(await client.secret(name), SECRETS, _details)


def _value_options(function: Any) -> Any:
    return click.option(
        "--file",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="File with the value; - or nothing reads standard input. One trailing newline is removed.",
    )(function)


@secrets.command("set")
@click.argument("name")
@_value_options
@click.option("--keep-value", is_flag=True, help="Change the settings below and keep the stored value.")
@click.option("--job", "jobs", multiple=True, metavar="PATTERN", help="Job that may use it, or etl-*. Repeatable.")
@click.option("--queue", "queues", multiple=True, metavar="PATTERN", help="Queue; all by default. Repeatable.")
@click.option("--host", "hosts", multiple=True, metavar="HOST", help="Host that it may be sent to. Repeatable.")
@click.option("--channel", "channels", multiple=True, metavar="PATTERN", help="Channel that may use it. Repeatable.")
@click.option("--trigger", "triggers", multiple=True, metavar="PATTERN", help="Trigger that may use it. Repeatable.")
@click.option("--description", default="", help="Description.")
@click.option("--provider", metavar="NAME", help="Provider that keeps the value, as the server names it.")
@click.option("--path", metavar="PATH", help="Where the provider has the value, such as apps/etl#password.")
@connected
async def put(
    client: AsyncClient,
    out: Output,
    name: str,
    file: Path | None,
    keep_value: bool,
    jobs: tuple[str, ...],
    queues: tuple[str, ...],
    hosts: tuple[str, ...],
    channels: tuple[str, ...],
    triggers: tuple[str, ...],
    description: str,
    provider: str | None,
    path: str | None,
) -> None:
    """Create or replace a secret. The value comes from a file or standard input, never from the command line.

    \b
    Examples:
      mainspring secrets set db-password --job 'etl-*' < password.txt
      mainspring secrets set hook-token --job notify --host api.example.com --file token.txt
      mainspring secrets set slack-url --channel ops --host hooks.slack.com < url.txt
      mainspring secrets set api-key --job 'etl-*' --provider vault --path apps/etl#api_key
    """
    value = None if keep_value or provider is not None else read_value(file)
    spec = wire.SecretSpec(
        value=value,
        provider=provider,
        path=path,
        description=description,
        jobs=list(jobs),
        queues=list(queues),
        hosts=list(hosts),
        channels=list(channels),
        triggers=list(triggers),
    )
    out.one(await client.put_secret(name, spec), SECRETS, lambda secret: f"{secret.name}: version {secret.version}")


@secrets.command
@click.argument("name")
@_value_options
@connected
async def rotate(client: AsyncClient, out: Output, name: str, file: Path | None) -> None:
    """Give a secret a new value. Attempts that start from now on get it."""
    made = await client.rotate_secret(name, read_value(file))
    out.one(made, SECRETS, lambda secret: f"{secret.name}: version {secret.version}")


@secrets.command
@click.argument("name")
@yes_option
@connected
async def delete(client: AsyncClient, out: Output, name: str, yes: bool) -> None:
    """Delete a secret. Attempts that refer to it fail from now on."""
    found = await client.secret(name)
    confirm(f"delete the secret {name}, used by {', '.join(found.jobs) or 'no job'}", yes=yes)
    await client.delete_secret(name)
    out.deleted(name)


@secrets.command
@connected
async def keys(client: AsyncClient, out: Output) -> None:
    """List the master keys of the server by id, the current one first, with the values that each protects."""
    _show_keys(await client.secret_keys(), out)


@secrets.command
@connected
async def encrypt(client: AsyncClient, out: Output) -> None:
    """Encrypt the secrets of channels and triggers that are in plain text, as every start of a server does."""
    _show_keys(await client.encrypt_secrets(), out)


@secrets.command("rotate-key")
@connected
async def rotate_key(client: AsyncClient, out: Output) -> None:
    """Wrap every value in the current master key, so that older keys can be removed from the key file."""
    _show_keys(await client.rotate_secret_key(), out)


@secrets.command("new-key")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--id", "key_id", metavar="ID", help="Id of the key.  [default: key-1, key-2, ...]")
def new_key(file: Path, key_id: str | None) -> None:
    """Add a random master key to FILE as the current one; creates the file, readable only by you."""
    from mainspring.cli.private_file import write_private
    from mainspring.vault.keyring import new_key_line, read_key_file, read_keys

    kept = read_key_file(file) if file.exists() else ""
    known = read_keys(kept, str(file)) if kept.strip() else {}
    key_id = key_id or next(f"key-{n}" for n in range(1, 1000) if f"key-{n}" not in known)
    if key_id in known:
        raise Invalid(f"{file} has a key {key_id!r} already; choose another --id")
    write_private(file, f"{new_key_line(key_id)}\n{kept}".rstrip("\n"))
    echo(f"{key_id} is the current key in {file}; back the file up: without it no secret can be read")


def read_value(file: Path | None) -> str:
    """Read a value from a file or standard input; one trailing newline is removed."""
    if file is None or str(file) == "-":
        if sys.stdin.isatty():
            return str(click.prompt("Value", hide_input=True, err=True))
        data = sys.stdin.buffer.read(4 * MAX_VALUE_CHARS + 1)
    else:
        try:
            with file.open("rb") as opened:
                data = opened.read(4 * MAX_VALUE_CHARS + 1)
        except OSError as error:
            raise Invalid(f"cannot read {file}: {error.strerror}") from None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise Invalid("the value is not UTF-8 text; encode it, for example in base64") from None
    return text.removesuffix("\n").removesuffix("\r")


def _show_keys(found: wire.SecretKeys, out: Output) -> None:
    if not out.is_text:
        out.value(found)
        return
    for key_id, count in found.keys.items():
        echo(f"{key_id}: {count:,} values{' (current)' if key_id == found.current else ''}")
    if found.encrypted:
        echo(f"{found.encrypted:,} channels and triggers encrypted")
    if found.plain:
        echo(f"{found.plain:,} channels and triggers are in plain text; run: mainspring secrets encrypt")
    if found.rewrapped:
        echo(f"{found.rewrapped:,} values wrapped in {found.current}")


def _details(secret: wire.Secret) -> str:
    fields = {name.replace("_", " "): value for name, value in msgspec.to_builtins(secret).items() if value is not None}
    return "\n".join(aligned([(name, ", ".join(v) if isinstance(v, list) else str(v)) for name, v in fields.items()]))
