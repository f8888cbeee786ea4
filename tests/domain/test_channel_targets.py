"""Targets of channels that cannot be what they are given as."""

from __future__ import annotations

import pytest

from mainspring.domain.channel import AppriseTarget, PagerDutyTarget, SmtpTarget, Target, channel_problems


@pytest.mark.parametrize(
    ("target", "pointer", "said"),
    [
        (PagerDutyTarget("https://events.example.com/x"), "/target/routing_key", "the routing key is a URL"),
        (PagerDutyTarget("two words"), "/target/routing_key", "not a routing key"),
        (AppriseTarget("plain"), "/target/url", "not an apprise URL"),
        (SmtpTarget("smtp://mail.example.com", "a@example.com", ("b@example.com",)), "/target/host", "not a host name"),
    ],
)
def test_it_is_refused_with_a_hint(target: Target, pointer: str, said: str) -> None:
    (problem,) = channel_problems("ops", target, [])
    assert problem.pointer == pointer
    assert said in problem.message
    assert problem.hint


@pytest.mark.parametrize(
    "target",
    [
        PagerDutyTarget("R03ABCDEF0123456789abcdef0123456"),
        AppriseTarget("mailto://user:pass@example.com"),
        SmtpTarget("mail.example.com", "a@example.com", ("b@example.com",)),
        SmtpTarget("::1", "a@example.com", ("b@example.com",)),
    ],
)
def test_ordinary_ones_are_accepted(target: Target) -> None:
    assert channel_problems("ops", target, []) == []
