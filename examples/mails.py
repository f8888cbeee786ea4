"""Three kinds of mail as jobs: password reset, marketing, payment reminder.

A worker loads them with: mainspring worker -m mails --pass-env MAIL_SERVER --pass-env BILLING_URL
MAIL_SERVER is the mail server (localhost:25), BILLING_URL the service that lists unpaid invoices.

    mainspring run password_reset -p address=new@example.com -p link=https://example.com/reset/123
"""

from __future__ import annotations

import json
import os
import smtplib
from email.message import EmailMessage
from typing import Any
from urllib.request import Request, urlopen

import mainspring as ms


def send(address: str, subject: str, text: str, key: str) -> None:
    """Send a mail. The same key gives the same Message-ID, so a mailbox recognizes a repetition."""
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "shop@example.com", address, subject
    mail["Message-ID"] = f"<{key}@shop.example.com>"
    mail.set_content(text)
    host, _, port = os.environ.get("MAIL_SERVER", "localhost:25").partition(":")
    with smtplib.SMTP(host, int(port or 25), timeout=30) as server:
        server.send_message(mail)


@ms.job(priority=9, timeout="1m", retries={"max": 5, "base": "2s", "cap": "30s"})
def password_reset(address: str, link: str) -> None:
    """Urgent: high priority, quick retries."""
    send(address, "Your new password", f"Choose it here: {link}\n", ms.context().execution_id)


@ms.job(priority=1, timeout="6h", retries={"max": 3, "base": "1s"}, preemptible=True)
def marketing_mail(campaign: str, addresses: list[str]) -> dict[str, int]:
    """Not urgent: may be preempted, and continues at its last checkpoint."""
    context = ms.context()
    done = context.last_checkpoint or 0
    for number, address in enumerate(addresses[done:], done):
        send(address, f"News: {campaign}", "Everything is new.\n", f"{campaign}-{number}")
        context.checkpoint(number + 1)
        ms.report_progress(number + 1, total=len(addresses))
    return {"sent": len(addresses) - done}


@ms.job(schedule="0 9 * * MON-FRI", tz="Europe/Berlin", retries=3, misfire="latest")
def payment_reminder(day: ms.FireDate) -> dict[str, Any]:
    """On working days, remind customers of unpaid invoices. A retry repeats the same keys."""
    billing = os.environ.get("BILLING_URL", "http://localhost:8000")
    with urlopen(f"{billing}/invoices?unpaid_on={day}", timeout=30) as answer:
        unpaid = json.load(answer)
    for invoice in unpaid:
        key = f"reminder-{invoice['number']}-{day}"
        send(invoice["address"], f"Invoice {invoice['number']}", f"Please pay {invoice['amount']}.\n", key)
        path = f"{billing}/invoices/{invoice['number']}/reminders"
        urlopen(Request(path, method="POST", data=b"{}", headers={"Idempotency-Key": key}), timeout=30).close()
    return {"reminded": [invoice["number"] for invoice in unpaid]}
