"""Triggers: the list, and one trigger with its deliveries, and a signed example or its last look."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
from starlette.responses import RedirectResponse, Response

from mainspring import wire
from mainspring.codec import decode, encode
from mainspring.domain.errors import invalid
from mainspring.domain.trigger import Source, TriggerSpec, WebhookSource
from mainspring.domain.watch import FilesSource
from mainspring.domain.webhook import example_curl
from mainspring.intake.triggers import definitions
from mainspring.views import triggers as views
from mainspring.web import render
from mainspring.web.endpoint import PageRequest, refuse_nul
from mainspring.web.render import page
from mainspring.web.urls import link

TRIGGERS_SHOWN = 100
DELIVERIES_SHOWN = 50
SCHEMES = ("github", "stripe", "standard", "generic")
MAX_REASON_CHARS = 1000
BATCH = re.compile(r"-?[0-9]{1,9}", re.ASCII)


async def triggers(request: PageRequest) -> Response:
    """GET /triggers."""
    cursor = request.query("cursor")
    found = await views.list_triggers(
        request.context.database, tenant=request.caller.tenant, limit=TRIGGERS_SHOWN, cursor=cursor or None
    )
    more = found.next_cursor and link("/triggers", cursor=found.next_cursor)
    return page("triggers.html", request.caller, triggers=found.items, next_page=more, cursor=cursor, schemes=SCHEMES)


async def create(request: PageRequest) -> Response:
    """POST /triggers: the response is the only page that ever shows the secret."""
    refuse_nul(request.form)
    name, job = (request.form.get(field, "").strip() for field in ("name", "job"))
    if request.form.get("kind") == "topic":
        spec = decode(encode({"name": name, "job": job, "source": _topic(request.form)}), wire.NewTrigger).spec
    else:
        spec = TriggerSpec(source=_source(request.form), job=job)
    context, caller = request.context, request.caller
    made = await definitions.create(context.database, context.vault, name, spec, tenant=caller.tenant, by=caller.name)
    return await _page(request, made)


async def trigger(request: PageRequest) -> Response:
    """GET /triggers/{ref}."""
    return await _page(request, await views.get(request.context.database, request.ref, tenant=request.caller.tenant))


async def pause(request: PageRequest) -> Response:
    """POST /triggers/{ref}/pause."""
    refuse_nul(request.form)
    reason = request.form.get("reason", "").strip()[:MAX_REASON_CHARS]
    await definitions.pause(
        request.context.database, request.ref, reason, tenant=request.caller.tenant, by=request.caller.name
    )
    return _back(request)


async def resume(request: PageRequest) -> Response:
    """POST /triggers/{ref}/resume."""
    await definitions.resume(
        request.context.database, request.ref, tenant=request.caller.tenant, by=request.caller.name
    )
    return _back(request)


async def rotate(request: PageRequest) -> Response:
    """POST /triggers/{ref}/rotate: the response shows the new secret, once."""
    found = await definitions.rotate(
        request.context.database,
        request.context.vault,
        request.ref,
        wire.RotateTriggerSecret(),
        tenant=request.caller.tenant,
        by=request.caller.name,
    )
    return await _page(request, found)


async def delete(request: PageRequest) -> Response:
    """POST /triggers/{ref}/delete."""
    await definitions.delete(
        request.context.database, request.ref, tenant=request.caller.tenant, by=request.caller.name
    )
    return RedirectResponse("/triggers", 303, render.HEADERS)


async def _page(request: PageRequest, found: wire.Trigger) -> Response:
    cursor = request.query("cursor")
    past = await views.deliveries(
        request.context.database,
        found.name,
        tenant=request.caller.tenant,
        limit=DELIVERIES_SHOWN,
        cursor=cursor or None,
    )
    address = None if found.path is None else f"{request.http.url.scheme}://{request.http.url.netloc}{found.path}"
    source = found.spec.source
    example = None
    if address is not None and isinstance(source, WebhookSource):
        example = example_curl(source.scheme, address, names=source.names)
    return page(
        "trigger.html",
        request.caller,
        trigger=found,
        deliveries=past.items,
        next_page=past.next_cursor and link(f"/triggers/{found.name}", cursor=past.next_cursor),
        address=address,
        example=example,
    )


def _source(form: Mapping[str, str]) -> Source:
    """The source that a form describes."""
    if form.get("kind") == "files":
        fields = {name: form.get(name, "").strip() for name in ("place", "pattern", "existing")}
        try:
            return msgspec.convert({"kind": "files", **fields}, FilesSource)
        except msgspec.ValidationError as error:
            raise invalid("/source", str(error)) from None
    scheme = form.get("scheme", "").strip()
    if scheme not in SCHEMES:
        raise invalid("/source/scheme", "unknown signature scheme", hint=", ".join(SCHEMES))
    return msgspec.convert({"kind": "webhook", "scheme": scheme}, WebhookSource)


def _topic(form: Mapping[str, str]) -> dict[str, str | int]:
    """The source that the form of a topic describes, as the API gets it."""
    fields = {name: form.get(name, "").strip() for name in ("cluster", "topic", "within", "start")}
    batch = form.get("batch", "").strip()
    return {"kind": "topic", **fields, "batch": int(batch) if BATCH.fullmatch(batch) else batch}


def _back(request: PageRequest) -> Response:
    return RedirectResponse(f"/triggers/{request.ref}", 303, render.HEADERS)
