"""Routes of secrets. Values are written and never returned."""

from __future__ import annotations

from mainspring import wire
from mainspring.api.route import Call, Table
from mainspring.domain.errors import Forbidden
from mainspring.intake import master_keys, secrets
from mainspring.views import secrets as secret_views

table = Table()
SECRETS = "/api/v1/secrets"
SECRET = SECRETS + "/{name}"
KEYS = "/api/v1/secret-keys"
SCOPE = "secrets"


@table.route("GET", SECRETS, scope="read", response=wire.Page[wire.Secret], query=("limit", "cursor"))
async def list_secrets(call: Call) -> wire.Page[wire.Secret]:
    """List secrets, without their values."""
    limit, cursor = call.number("limit", 100), call.query("cursor")
    return await secret_views.list_secrets(call.context.database, tenant=call.tenant, limit=limit, cursor=cursor)


@table.route("GET", SECRET, scope="read", response=wire.Secret)
async def get_secret(call: Call) -> wire.Secret:
    """Get a secret, without its value."""
    return await secret_views.get(call.context.database, call.path("name"), tenant=call.tenant)


@table.route("PUT", SECRET, scope=SCOPE, body=wire.SecretSpec, response=wire.Secret)
async def put_secret(call: Call) -> wire.Secret:
    """Create or replace a secret; an omitted value stays as it is."""
    context = call.context
    return await secrets.put(
        context.database, context.vault, call.path("name"), call.body, tenant=call.tenant, by=call.caller.name
    )


@table.route("POST", SECRET + "/rotate", scope=SCOPE, body=wire.RotateSecret, response=wire.Secret)
async def rotate_secret(call: Call) -> wire.Secret:
    """Give a secret a new value. Attempts that start from now on get it."""
    context, value = call.context, call.body.value
    return await secrets.rotate(
        context.database, context.vault, call.path("name"), value, tenant=call.tenant, by=call.caller.name
    )


@table.route("DELETE", SECRET, scope=SCOPE, status=204)
async def delete_secret(call: Call) -> None:
    """Delete a secret. Attempts that refer to it fail from now on."""
    await secrets.delete(call.context.database, call.path("name"), tenant=call.tenant, by=call.caller.name)


@table.route("GET", KEYS, scope="admin", response=wire.SecretKeys)
async def list_keys(call: Call) -> wire.SecretKeys:
    """List the ids of the master keys, and how many values each protects."""
    _demand_cluster(call)
    return await master_keys.keys(call.context.database.root, call.context.vault)


@table.route("POST", KEYS + "/rotate", scope="admin", response=wire.SecretKeys)
async def rotate_key(call: Call) -> wire.SecretKeys:
    """Wrap every value in the current master key, which is the first one of the key file.

    Secrets of channels and triggers that are in plain text are encrypted first.
    """
    _demand_cluster(call)
    context = call.context
    return await master_keys.rotate(context.database.root, context.vault, tenant=call.tenant, by=call.caller.name)


@table.route("POST", KEYS + "/encrypt", scope="admin", response=wire.SecretKeys)
async def encrypt(call: Call) -> wire.SecretKeys:
    """Encrypt the secrets of channels and triggers that are in plain text, as every start of a server does."""
    _demand_cluster(call)
    context = call.context
    return await master_keys.encrypt_now(context.database.root, context.vault, tenant=call.tenant, by=call.caller.name)


def _demand_cluster(call: Call) -> None:
    if not call.caller.is_cluster_admin:
        raise Forbidden("master keys belong to the installation: only a cluster administrator can see or rotate them")
