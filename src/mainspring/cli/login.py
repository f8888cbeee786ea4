"""`mainspring login`, `logout` and `whoami`: sign in with the device flow of an identity provider (RFC 8628)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mainspring import wire
from mainspring.cli.connect import connected
from mainspring.cli.options import current, server_options
from mainspring.cli.output import Column, Output, TableLayout, echo
from mainspring.domain.errors import Conflict, Forbidden, Invalid, NotFound, Unauthenticated

if TYPE_CHECKING:
    from mainspring.client import AsyncClient
    from mainspring.client.discovery import Server
    from mainspring.client.logins import Login

DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
DISCOVERY = "/.well-known/openid-configuration"
DEFAULT_INTERVAL_S, MIN_INTERVAL_S, MAX_INTERVAL_S = 5.0, 0.2, 60.0
SLOW_DOWN_S = 5.0
MAX_WAIT_S = 1800.0

CALLER: TableLayout[wire.Whoami] = TableLayout(
    name=lambda caller: caller.name,
    columns=[
        Column("NAME", lambda caller: caller.name),
        Column("TENANT", lambda caller: caller.tenant),
        Column("ROLE", lambda caller: caller.role or "–"),
        Column("SCOPES", lambda caller: ",".join(caller.scopes), wraps=True),
        Column("TOKEN", lambda caller: str(caller.token_id), wide=True),
    ],
    empty="unknown",
)


@click.command()
@click.option("--issuer", metavar="NAME", help="Identity provider to use, if the server has several.")
@server_options(hidden=True)
def login(issuer: str | None) -> None:
    """Sign in at the identity provider of the server, with a browser on any device.

    The token is kept in a private file in ~/.config/mainspring/logins, and sent only to the server that you signed in
    to. It is renewed when it expires, as long as the identity provider allows.
    """
    from mainspring.client.discovery import identity_of
    from mainspring.client.logins import Logins

    server = _server()
    chosen = _choose(_issuers_of(server), issuer)
    endpoints = _endpoints(chosen["url"])
    made = _authorize(chosen, endpoints, identity_of(server.url))
    logins = Logins(Path.home())
    logins.write(made)
    try:
        _greet(server, made)
    except (Unauthenticated, Forbidden):
        logins.forget(made.server)
        raise


@click.command()
@server_options(hidden=True)
def logout() -> None:
    """Delete the token of `mainspring login`, and revoke it at the identity provider if that is possible."""
    from mainspring.client.discovery import discover, identity_of
    from mainspring.client.logins import Logins, request
    from mainspring.domain.errors import Unavailable

    server = discover(current().url, current().token, logins=False)
    logins = Logins(Path.home())
    known = logins.read(identity_of(server.url))
    logins.forget(identity_of(server.url))
    if known is None:
        raise NotFound(f"not signed in to {server.url}")
    if known.revocation_endpoint is not None and known.refresh_token is not None:
        form = {"token": known.refresh_token, "token_type_hint": "refresh_token", "client_id": known.client_id}
        try:
            request("POST", known.revocation_endpoint, form)
        except Unavailable as error:
            echo(f"the token is deleted here, but was not revoked: {error.message}", err=True)
    echo(f"signed out of {server.url}", err=True)


@click.command()
@connected
async def whoami(client: AsyncClient, out: Output) -> None:
    """Show the name, tenant, role and scopes under which the server knows you."""
    out.row(await client.whoami(), CALLER)


def _server() -> Server:
    """The server to sign in to. A folder cannot choose it: the token would go to a server that others have named."""
    from mainspring.client.discovery import FOLDER, discover

    server = discover(current().url, None, logins=False)
    if Path(server.origin).parent.name == FOLDER and not server.is_local:
        raise Unauthenticated(
            f"{server.origin} names {server.url}; to sign in there, pass --url {server.url}",
            code="token_of_another_server",
        )
    return server


def _issuers_of(server: Server) -> list[dict[str, Any]]:
    from mainspring.client.problems import Unreachable, unexpected_response
    from mainspring.domain.errors import MainspringError
    from mainspring.http_client import BlockingNetwork, HttpClient, HttpError, finish
    from mainspring.http_client.route import tls_for

    client = HttpClient(
        server.url, {}, network=BlockingNetwork(), tls=tls_for(server.url), env={} if server.is_local else None
    )
    try:
        response = finish(client.request("GET", "/login", headers={"Accept": "application/json"}, timeout_s=30))
    except HttpError as error:
        raise Unreachable(server, str(error)) from None
    finally:
        client.close()
    import msgspec

    try:
        found: list[dict[str, Any]] = msgspec.json.decode(response.body, type=dict[str, list[dict[str, Any]]])[
            "issuers"
        ]
    except (msgspec.DecodeError, KeyError):
        failure: MainspringError = unexpected_response(server, "no list of identity providers")
        raise failure from None
    return found


def _choose(issuers: list[dict[str, Any]], name: str | None) -> dict[str, Any]:
    names = ", ".join(str(issuer["name"]) for issuer in issuers)
    if not issuers:
        raise NotFound("this server has no identity provider for commands; use a token")
    found = [issuer for issuer in issuers if name in (None, issuer["name"])]
    if not found:
        raise NotFound(f"unknown identity provider {name!r}; known: {names}")
    if len(found) > 1:
        raise Invalid(f"choose an identity provider with --issuer: {names}")
    return found[0]


def _endpoints(url: str) -> dict[str, Any]:
    """The discovery document of an issuer, which must be its own."""
    from mainspring.client.logins import request

    status, document = request("GET", str(url).rstrip("/") + DISCOVERY)
    if status != 200 or document.get("issuer") != url:
        raise Conflict(f"{url} does not describe itself as an identity provider", code="issuer_unavailable")
    for name in ("device_authorization_endpoint", "token_endpoint"):
        if not isinstance(document.get(name), str):
            raise Conflict(f"{url} has no {name}: it does not support sign-in of commands", code="issuer_unavailable")
    return document


def _authorize(issuer: dict[str, Any], endpoints: dict[str, Any], server: str) -> Login:
    """Run the device flow: print where to confirm, and poll until the user has."""
    from mainspring.client.logins import Login, expiry, now_s, request

    client_id = str(issuer["client_id"])
    form = {"client_id": client_id, "scope": " ".join(map(str, issuer["scopes"]))}
    status, begun = request("POST", endpoints["device_authorization_endpoint"], form)
    if status != 200 or not isinstance(begun.get("device_code"), str):
        raise Unauthenticated(f"the identity provider refused the sign-in: {_reason(begun)}")
    echo(f"Open {begun.get('verification_uri')} and enter the code {begun.get('user_code')}", err=True)
    if isinstance(begun.get("verification_uri_complete"), str):
        echo(f"or open {begun['verification_uri_complete']}", err=True)
    until = now_s() + min(_number(begun.get("expires_in"), 300.0), MAX_WAIT_S)
    interval_s = min(max(_number(begun.get("interval"), DEFAULT_INTERVAL_S), MIN_INTERVAL_S), MAX_INTERVAL_S)
    form = {"grant_type": DEVICE_GRANT, "device_code": begun["device_code"], "client_id": client_id}
    while now_s() < until:
        _pause(interval_s)
        status, answer = request("POST", endpoints["token_endpoint"], form)
        if status == 200 and isinstance(answer.get("access_token"), str):
            return Login(
                server=server,
                issuer=str(issuer["url"]),
                client_id=client_id,
                token_endpoint=endpoints["token_endpoint"],
                revocation_endpoint=endpoints.get("revocation_endpoint"),
                access_token=answer["access_token"],
                refresh_token=answer.get("refresh_token"),
                expires_at=expiry(answer),
            )
        if answer.get("error") == "slow_down":
            interval_s += SLOW_DOWN_S
        elif answer.get("error") != "authorization_pending":
            raise Unauthenticated(f"the sign-in was refused: {_reason(answer)}")
    raise Unauthenticated("the sign-in was not confirmed in time; run `mainspring login` again")


def _greet(server: Server, made: Login) -> None:
    from mainspring.client import Client

    with Client(server.url, made.access_token) as client:
        caller = client.whoami()
    echo(f"signed in to {server.url} as {caller.name}, tenant {caller.tenant}, role {caller.role}", err=True)


def _pause(seconds: float) -> None:
    import time

    time.sleep(seconds)


def _number(value: Any, default: float) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else default


def _reason(answer: dict[str, Any]) -> str:
    return str(answer.get("error_description") or answer.get("error") or "no reason given")[:300]
