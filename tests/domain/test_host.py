"""Values of templates do not send an http task to another host than its URL says."""

from __future__ import annotations

import pytest

from mainspring.domain.task import host_problem


@pytest.mark.parametrize(
    ("url", "value", "is_fine"),
    [
        ("https://example.org/{{params.x}}", "../a?b@evil.com", True),
        ("https://example.org?q={{params.x}}", "@evil.com/", True),
        ("{{params.x}}", "https://any.example.org/", True),
        ("{{params.x}}/hook", "https://any.example.org", True),
        ("https://{{params.x}}.example.org/", "eu", True),
        ("https://{{params.x}}.example.org/", "evil.com/?", False),
        ("https://{{params.x}}.example.org/", "evil.com#", False),
        ("https://{{params.x}}.example.org/", "a@evil.com\\", False),
        ("https://{{params.x}}/", "example.org:8080", True),
        ("https://{{params.x}}/", "a:b@example.org", False),
        ("https://example.org:{{params.x}}/", "8080", True),
        ("https://example.org:{{params.x}}/", "80@evil.com", False),
        ("https://example.org{{params.x}}", "/path?x", True),
        ("https://example.org{{params.x}}", "", True),
        ("https://example.org{{params.x}}", ".evil.com", False),
        ("https://example.org{{params.x}}", "@evil.com", False),
        ("https://example.org{{params.x}}", ":1@evil.com/", False),
        ("https://example.org/", "unused", True),
    ],
)
def test_a_value_stays_in_its_part_of_the_url(url: str, value: str, is_fine: bool) -> None:
    assert (host_problem(url, {"params.x": value}) is None) == is_fine
