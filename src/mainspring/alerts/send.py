"""Sends one notification to one channel and returns the receiver's answer. Never raises for a receiver's fault."""

from __future__ import annotations

import asyncio
import smtplib
from collections.abc import Sequence
from dataclasses import replace

from mainspring import outbound
from mainspring.alerts import format, mail, sign
from mainspring.alerts.format import Notification
from mainspring.clock import Clock, SystemClock
from mainspring.codec import encode
from mainspring.domain.address import Network
from mainspring.domain.channel import (
    AppriseTarget,
    PagerDutyTarget,
    SlackTarget,
    SmtpTarget,
    Target,
    WebhookTarget,
    without_secrets,
)
from mainspring.domain.errors import MainspringError
from mainspring.http_client import HttpError, InvalidRequest
from mainspring.store.outbox import Sent

TIMEOUT_S = 15.0
MAX_EXCERPT = 500
NOT_AN_INCIDENT = "neither opens nor closes an incident"


class Sender:
    """One HTTP client for all channels; `allowed` are networks it may call besides public ones.

    apprise opens its own connections, which cannot be checked here, so an operator has to allow it.
    """

    def __init__(
        self,
        allowed: Sequence[Network] = (),
        *,
        apprise: bool = False,
        public_url: str = "",
        clock: Clock | None = None,
    ) -> None:
        self._allowed = allowed
        self._public_url = public_url
        self._apprise = apprise
        self._clock = clock or SystemClock()
        self._http = outbound.Outbound(allowed)

    async def close(self) -> None:
        self._http.close()

    async def send(self, target: Target, notification: Notification) -> Sent:
        """Send the notification; `error` of the result is None if the receiver accepted it."""
        started = self._clock.monotonic()
        notification = replace(notification, public_url=self._public_url)
        status, excerpt, error = None, None, None
        try:
            async with asyncio.timeout(TIMEOUT_S * 2):
                status, excerpt = await self._send(target, notification)
            if status is not None and not 200 <= status < 300:
                error = f"the receiver answered {status}"
        except MainspringError as problem:
            error = problem.message
        except TimeoutError:
            error = f"no answer within {TIMEOUT_S * 2:g} s"
        except smtplib.SMTPResponseException as problem:
            status, excerpt = problem.smtp_code, _text(problem.smtp_error)
            error = f"the mail server answered {problem.smtp_code}"
        except (HttpError, InvalidRequest, smtplib.SMTPException, OSError) as problem:
            error = f"{type(problem).__name__}: {problem}"
        duration_ms = round((self._clock.monotonic() - started) * 1000)
        return Sent(status, _shown(excerpt, target), duration_ms, _shown(error, target))

    async def _send(self, target: Target, notification: Notification) -> tuple[int | None, str | None]:
        match target:
            case WebhookTarget(url=url, secret=secret):
                body = encode(format.webhook(notification))
                now_s = int(self._clock.now_ms() / 1000)
                headers = sign.signed(secret or "", event_id=notification.event_id, at_s=now_s, body=body)
                return await self._post(url, body, headers)
            case SlackTarget(url=url):
                return await self._post(url or "", encode(format.slack(notification)), {})
            case PagerDutyTarget(url=url, routing_key=key):
                event = format.pagerduty(notification, key or "")
                return (None, NOT_AN_INCIDENT) if event is None else await self._post(url, encode(event), {})
            case SmtpTarget():
                message = mail.build_message(
                    target,
                    subject=format.summary(notification),
                    text=format.letter(notification),
                    event_id=notification.event_id,
                )
                return await mail.post(target, message, self._allowed)
            case AppriseTarget(url=url):
                if not self._apprise:
                    raise MainspringError(
                        "apprise is disabled on this server; enable it with mainspring serve --apprise"
                    )
                return await _apprise(url or "", notification)

    async def _post(self, url: str, body: bytes, headers: dict[str, str]) -> tuple[int, str]:
        headers = {**headers, "accept": "*/*", "content-type": "application/json", "user-agent": "mainspring"}
        async with self._http.stream("POST", url, body, headers=headers, timeout_s=TIMEOUT_S) as answer:
            return answer.status, _text(await answer.read(MAX_EXCERPT * 4))


async def _apprise(url: str, notification: Notification) -> tuple[int | None, str | None]:
    try:
        import apprise
    except ImportError:
        raise MainspringError("apprise is not installed on the server; run pip install 'mainspring[apprise]'") from None
    service = apprise.Apprise()
    if not service.add(url):
        raise MainspringError("apprise does not support this kind of URL")
    if not await service.async_notify(
        title=format.summary(notification),
        body=format.letter(notification),
        body_format=apprise.NotifyFormat.TEXT,  # so that a service that shows HTML or Markdown escapes it
    ):
        raise MainspringError("apprise could not send the notification; see the server log")
    return None, "sent by apprise"


def _shown(text: str | None, target: Target) -> str | None:
    """Mask the channel's secrets before the text is cut: everyone who may read the tenant sees it."""
    return None if text is None else without_secrets(text, target)[:MAX_EXCERPT]


def _text(data: bytes | str) -> str:
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else str(data)
    return text.replace("\0", "")
