"""Public names and routes change only on purpose."""

from __future__ import annotations

from tools.public_names import LIST, listing, routes


def test_the_public_names_are_the_listed_ones() -> None:
    listed = LIST.read_text(encoding="utf-8")
    assert listing() == listed, "if this change is meant: .venv/bin/python -m tools.public_names"


def test_routes_are_seen_in_calls_and_decorators() -> None:
    source = """
TABLE = [Route("/metrics", metrics), route("POST", "/jobs/{job_id}/pause", pause), Mount("/static")]

@api.get("/jobs")
async def jobs(request): return open("/etc/hosts")
"""
    assert set(routes(source)) == {"/metrics", "POST /jobs/{job_id}/pause", "/static", "/jobs"}
