"""The metrics of this process in Prometheus format."""

from __future__ import annotations

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest


def exposition() -> tuple[bytes, str]:
    """Return the metrics and their media type."""
    return generate_latest(), CONTENT_TYPE_LATEST
