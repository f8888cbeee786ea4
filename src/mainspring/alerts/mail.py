"""Sends mail over SMTP with the standard library's client in a thread, only to allowed addresses."""

from __future__ import annotations

import asyncio
import smtplib
import socket
import ssl
from collections.abc import Sequence
from email.message import EmailMessage
from typing import Any

from mainspring.domain.address import Network
from mainspring.domain.channel import SmtpTarget
from mainspring.outbound import addresses

TIMEOUT_S = 15.0


class _Smtp(smtplib.SMTP):
    """Connects to the address that was checked; TLS still verifies the host name."""

    def __init__(self, address: str) -> None:
        super().__init__(timeout=TIMEOUT_S)
        self._address = address

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        return socket.create_connection((self._address, port), timeout)


class _SmtpOverTls(_Smtp):
    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        plain = super()._get_socket(host, port, timeout)
        return ssl.create_default_context().wrap_socket(plain, server_hostname=host)


def build_message(target: SmtpTarget, *, subject: str, text: str, event_id: str) -> EmailMessage:
    """Build the mail. The Message-ID is the same at every try, so that a mailbox can drop repeats."""
    message = EmailMessage()
    message["Subject"] = " ".join(subject.split())[:200]
    message["From"] = target.sender
    message["To"] = ", ".join(target.to)
    message["Message-ID"] = f"<{event_id}@mainspring>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(text)
    return message


async def post(target: SmtpTarget, message: EmailMessage, allowed: Sequence[Network]) -> tuple[int, str]:
    """Send the mail; return the server's last reply. Raises OSError or an SMTP error."""
    address = (await addresses(target.host, target.port, allowed))[0]
    return await asyncio.to_thread(_post, target, message, address)


def _post(target: SmtpTarget, message: EmailMessage, address: str) -> tuple[int, str]:
    smtp: Any = _SmtpOverTls(address) if target.tls == "tls" else _Smtp(address)
    smtp._host = target.host
    code, answer = smtp.connect(target.host, target.port)
    if code != 220:
        smtp.close()
        raise smtplib.SMTPConnectError(code, answer)
    with smtp:
        if target.tls == "starttls":
            smtp.starttls(context=ssl.create_default_context())
        if target.username is not None and target.password is not None:
            smtp.login(target.username, target.password)
        refused = smtp.send_message(message)
        if refused:
            raise smtplib.SMTPRecipientsRefused(refused)
        return 250, f"accepted for {', '.join(target.to)}"
