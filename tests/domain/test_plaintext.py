"""Values that look like secrets, and values that do not."""

from __future__ import annotations

import base64
import random
import uuid

import pytest

from mainspring.domain.plaintext import looks_secret

SECRET = [
    ("DB_PASSWORD", "hunter2"), ("password", "pass"), ("apiKey", "abcd1234"), ("GITHUB_TOKEN", "x" * 8),
    ("client_secret", "v4lue"),
    ("AWS_SECRET_ACCESS_KEY", "abcdefgh"), ("signing-key", "abcdefgh"), ("X", "AKIA" + "A1" * 8),
    ("X", "ghp_" + "a1B2" * 9), ("X", "see glpat-" + "a1B2" * 5),
    ("X", "xoxb-1234567890-abc"), ("X", "sk_live_" + "a1" * 10),
    ("X", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2ln"), ("X", "-----BEGIN RSA PRIVATE KEY-----\nMII"),
    ("X", "-----BEGIN PRIVATE KEY-----"), ("URL", "postgresql://user:hunter2@db.example/x"), ("X", "ms_" + "a" * 43),
    ("X", "{{params.user}} and AKIA" + "A1" * 8), ("X", "redis://:pw@cache:6379"),
]  # fmt: skip
HARMLESS = [
    ("DB_PASSWORD", "secret://db"), ("DB_PASSWORD", "{{secret:db}}"), ("DB_PASSWORD", "{{params.password}}"),
    ("DB_PASSWORD", ""), ("PASSWORD_FILE", "/run/secrets/x"), ("max_tokens", "4096"), ("token", "/var/run/token"),
    ("tokenizer", "bert-base-uncased"), ("secret_name", "db"), ("USE_TOKEN", "true"), ("token", "$TOKEN"),
    ("KEY", "value"), ("primary_key", "identifier"), ("URL", "https://example.com/a:b@c"), ("X", "https://user@host/x"),
    ("ID", str(uuid.UUID(int=2**100 + 12345))), ("SHA", "d670460b4b4aece5915caf5c68d12f560a9fe3e4"),
    ("X", "this-is-an-ordinary-name-of-a-Job-2026"), ("PATH", "/usr/local/bin:/usr/bin"), ("N", 5), ("N", None),
    ("MODULE", "MyCompanyReportingPipelineVersionTwo"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), SECRET)
def test_values_that_look_secret(name: str, value: str) -> None:
    reason = looks_secret(name, value)
    assert reason is not None and value not in reason


@pytest.mark.parametrize(("name", "value"), HARMLESS)
def test_values_that_do_not(name: str, value: object) -> None:
    assert looks_secret(name, value) is None


def test_random_values_are_found_by_their_entropy() -> None:
    source = random.Random(7)
    values = [base64.urlsafe_b64encode(source.randbytes(30)).decode() for _ in range(500)]
    assert sum(looks_secret("X", value) is not None for value in values) >= 495


def test_headers_of_authentication() -> None:
    assert looks_secret("Authorization", "Bearer abc", header=True) and looks_secret("X-Api-Key", "abcd", header=True)
    assert looks_secret("Authorization", "Bearer {{secret:x}}", header=True) is None
    assert looks_secret("Content-Type", "application/json", header=True) is None
