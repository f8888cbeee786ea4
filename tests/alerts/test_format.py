"""Text of jobs, such as their names and errors, cannot become markup, mentions, links or header lines of a message."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from mainspring.alerts import format, mail
from mainspring.alerts.format import Notification
from mainspring.alerts.send import Sender
from mainspring.domain.channel import AppriseTarget, PagerDutyTarget, SlackTarget, SmtpTarget, without_secrets
from tests.support.alerts import LOOPBACK
from tests.support.http_receiver import receiving, reply

AT = datetime(2026, 1, 1, tzinfo=UTC)


def failed(error: str, job: str = "report") -> Notification:
    data = {"job": job, "job_id": "j", "state": "failed", "attempt": 1, "error": error}
    return Notification("execution.failed", "e1", AT, data)


@pytest.mark.parametrize("text", ["<!channel>", "<!here|x>", "<https://evil.example|login>", "<@U123>", "a & <b>"])
def test_slack_gets_no_markup(text: str) -> None:
    message = format.slack(failed(text))
    for shown in (message["text"], message["blocks"][0]["text"]["text"]):
        assert "<" not in shown and ">" not in shown
    assert message["blocks"][0]["text"]["verbatim"] is True and message["parse"] == "none"
    assert message["link_names"] is False


def test_a_notification_has_its_page_its_status_and_the_line_of_the_error() -> None:
    error = "exit code 3: no ledger\nreading\nno ledger"
    data = {"job": "report", "job_id": "j", "execution_id": "e-1", "state": "failed", "attempt": 3, "error": error}
    fired = Notification("job.failed", "e1", AT, data, "https://jobs.example.com")
    over = Notification("job.recovered", "e2", AT, {"job": "report", "job_id": "j"}, "https://jobs.example.com")
    assert format.summary(fired) == "[FIRING] report: failed after 3 attempts: exit code 3: no ledger"
    assert format.summary(over) == "[RESOLVED] report: recovered: the latest execution succeeded"
    page = "https://jobs.example.com/executions/e-1"
    assert format.letter(fired).splitlines()[:2] == [format.summary(fired), f"Open: {page}"]
    assert (format.webhook(fired)["status"], format.webhook(fired)["url"]) == ("firing", page)
    assert format.webhook(over)["status"] == "resolved" and over.url == "https://jobs.example.com/jobs/j"
    slack = format.slack(fired)
    assert slack["text"].startswith("🔴 [FIRING]") and slack["text"].endswith(page)
    assert slack["blocks"][1]["elements"][0]["url"] == page
    assert format.slack(over)["text"].startswith("🟢 [RESOLVED]")
    page_of_incident = format.pagerduty(fired, "key")
    assert page_of_incident is not None and page_of_incident["client_url"] == page
    assert page_of_incident["links"] == [{"href": page, "text": "Open in Mainspring"}]
    alert = Notification("alert.firing", "e3", AT, {"rule": "queue_old", "summary": "30 s"}, "https://jobs.example.com")
    assert format.summary(alert) == "[FIRING] queue_old: 30 s" and alert.url == "https://jobs.example.com/alerts"
    plain = Notification("execution.succeeded", "e4", AT, {"job": "report"})
    assert plain.status is None and plain.url is None and "url" not in format.webhook(plain)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        ("ValueError: no\n  File x", "ValueError: no"),
        ("Traceback (most recent call last):\n  File x\nKeyError: 'a'\n", "KeyError: 'a'"),
        ("\n", ""),
    ],
)
def test_the_line_of_an_error_names_its_cause(error: str, line: str) -> None:
    assert format.error_line(error) == line


@pytest.mark.parametrize("text", ["@channel", "@here", "@Everyone", "x@all"])
def test_nobody_is_mentioned(text: str) -> None:
    assert text not in format.slack(failed(text))["text"]


def test_a_value_cannot_add_a_field_to_a_mail() -> None:
    lines = format.details(failed("boom\nstate: succeeded\r\njob: another\u2028x: y")).splitlines()
    assert [line for line in lines if line.startswith(("state:", "job:", "x:"))] == ["job: report", "state: failed"]


@pytest.mark.parametrize("text", ["a\r\nBcc: evil@example.com", "a\nb", "a\x0bb\x0cc\x85d\u2029e", "é" * 300])
def test_a_subject_is_one_header(text: str) -> None:
    target = SmtpTarget("h", "a@b.c", ("d@e.f",))
    built = mail.build_message(target, subject=format.summary(failed(text)), text="x", event_id="e1")
    head = bytes(built).partition(b"\n\n")[0].decode()
    assert not [line for line in head.splitlines() if line.lower().startswith("bcc")]
    assert built.get_content_type() == "text/plain"


@pytest.mark.anyio
@pytest.mark.parametrize("path", ["/T0/B0/s3cret spaced", "/T0/B0/s3crét", "/T0/B0/s3cret"])
async def test_what_is_kept_of_a_delivery_has_no_secret(path: str) -> None:
    """Errors and excerpts are shown to everyone who may read; the receiver may repeat what it got."""
    sender = Sender(LOOPBACK)
    try:
        async with receiving(lambda got: reply("404 Not Found", f"no such hook: {got.line}".encode())) as server:
            sent = await sender.send(SlackTarget(server.url(path)), failed("x"))
    finally:
        await sender.close()
    assert sent.error is not None and "s3cr" not in f"{sent.error} {sent.excerpt}"


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (SlackTarget("https://hooks.example/T0/B0/s3cret"), "invalid path '/T0/B0/s3cret'"),
        (SlackTarget("https://hooks.example/T0/B0/s3crét"), "invalid path '/T0/B0/s3cr%C3%A9t'"),
        (SlackTarget("https://hooks.example/T0/B0/s3cret"), "no such hook: s3cret"),
        (PagerDutyTarget("s3cret"), '{"error": "unknown routing key s3cret"}'),
        (SmtpTarget("h", "a@b.c", ("d@e.f",), username="u", password="s3cret"), "535 wrong: s3cret or czNjcmV0"),
        (AppriseTarget("tgram://s3cret:bot@host/chat"), "cannot reach tgram://s3cret:bot@host/chat as s3cret"),
    ],
)
def test_secrets_are_masked(target: SlackTarget | PagerDutyTarget | SmtpTarget | AppriseTarget, text: str) -> None:
    shown = without_secrets(text, target)
    assert "s3cr" not in shown and "czNj" not in shown and "•••" in shown
