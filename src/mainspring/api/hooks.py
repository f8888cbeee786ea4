"""The address of webhooks: the one route outside the route table that changes something.

A request has no token. Its signature authenticates it, and starts nothing but what the trigger names.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mainspring.api.auth import SIGNED, client_address
from mainspring.api.context import Context
from mainspring.api.errors import guarded
from mainspring.api.route import JsonResponse, read_body, refuse_nul
from mainspring.codec import encode
from mainspring.domain.errors import NotFound, TooMany, Unauthenticated
from mainspring.domain.trigger import WebhookSource
from mainspring.intake.triggers import hooks
from mainspring.intake.triggers.deliver import deliver
from mainspring.telemetry import metrics

STATUS = {"started": 200, "filtered": 200, "paused": 409, "refused": 422}


def routes(context: Context) -> list[BaseRoute]:
    async def receive(request: Request) -> Response:
        return await guarded(lambda: _receive(context, request))

    return [Route(path, receive, methods=["POST"]) for path in SIGNED]


async def _receive(context: Context, request: Request) -> Response:
    """Verify the signature, then deliver. Requests without a valid one count against the limit of their address."""
    address = client_address(request)
    context.rates.admit_unauthenticated(address, count=False)
    refuse_nul(request)
    body = await read_body(request, hooks.MAX_HOOK_BODY)
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.scope["headers"]]
    try:
        trigger = await hooks.authenticate(
            context.database, context.vault, request.path_params["trigger_id"], headers, body
        )
    except (NotFound, Unauthenticated):
        context.rates.admit_unauthenticated(address)
        raise
    source = trigger.spec.source
    assert isinstance(source, WebhookSource)
    try:
        context.rates.admit_hook(trigger.trigger_id)
    except TooMany:
        metrics.TRIGGER_DELIVERIES.labels(trigger.kind, "limited").inc()
        raise
    own = context.of(trigger.tenant).database  # the signature names the tenant: row-level security from here on
    answer = await deliver(own, trigger, hooks.arrival_of(source, headers, body))
    if answer.outcome == "started":
        context.reads.wrote(trigger.tenant, None)
    return JsonResponse(encode(answer), STATUS[answer.outcome])
