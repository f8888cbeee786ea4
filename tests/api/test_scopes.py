"""Which scope each change needs, written down. A new route is added here on purpose, by someone who decides its scope.

`write` makes and changes definitions, and starts what they say. `operate` overrides what has happened: outcomes, dead
letters, and steps that wait. `admin` changes what all jobs share. `cluster` manages
tenants. `tokens` passes rights on, at most those of the token itself. Routes that read need `read`, except those below.
"""

from __future__ import annotations

import pytest

from mainspring.api.app import endpoints
from mainspring.web.app import every_page

CHANGES = {
    "write": """
        PUT /api/v1/alert-rules/{name}
        DELETE /api/v1/alert-rules/{name}
        POST /api/v1/backfills/{backfill_id}/cancel
        POST /api/v1/backfills/{backfill_id}/pause
        POST /api/v1/backfills/{backfill_id}/resume
        POST /api/v1/blackouts
        DELETE /api/v1/blackouts/{blackout_id}
        PUT /api/v1/calendars/{name}
        DELETE /api/v1/calendars/{name}
        POST /api/v1/channels
        PUT /api/v1/channels/{name}
        DELETE /api/v1/channels/{name}
        POST /api/v1/channels/{name}/enable
        POST /api/v1/channels/{name}/test
        POST /api/v1/executions/{ref}/cancel
        POST /api/v1/executions:batch
        POST /api/v1/jobs
        PATCH /api/v1/jobs/{ref}
        DELETE /api/v1/jobs/{ref}
        POST /api/v1/jobs/{ref}/backfill
        POST /api/v1/jobs/{ref}/dependencies
        DELETE /api/v1/jobs/{ref}/dependencies/{parent}
        POST /api/v1/jobs/{ref}/pause
        POST /api/v1/jobs/{ref}/resume
        POST /api/v1/jobs/{ref}/rollback
        POST /api/v1/jobs/{ref}/trigger
        POST /api/v1/manifests:apply
        POST /api/v1/runs/{run_id}/cancel
        POST /api/v1/runs/{run_id}/events/{name}
        POST /api/v1/runs/{run_id}/steps/{step}/approve
        POST /api/v1/runs/{run_id}/steps/{step}/reject
        POST /api/v1/silences
        DELETE /api/v1/silences/{silence_id}
        POST /api/v1/triggers
        PUT /api/v1/triggers/{name}
        DELETE /api/v1/triggers/{name}
        POST /api/v1/triggers/{name}/pause
        POST /api/v1/triggers/{name}/resume
        POST /api/v1/triggers/{name}/rotate
        POST /api/v1/triggers/{name}/test
        POST /api/v1/workflows
        DELETE /api/v1/workflows/{ref}
        POST /api/v1/workflows/{ref}/rollback
        POST /api/v1/workflows/{ref}/run
        POST /api/v1/duration-requests
        POST /api/v1/duration-requests/{ref}/withdraw
    """,
    "exceed": """
        POST /api/v1/duration-requests/{ref}/decide
    """,
    "operate": """
        PATCH /api/v1/dead-letters/{ref}
        POST /api/v1/dead-letters/{ref}/claim
        POST /api/v1/dead-letters/{ref}/dismiss
        POST /api/v1/dead-letters/{ref}/release
        POST /api/v1/dead-letters/{ref}/replay
        POST /api/v1/dead-letters:claim
        POST /api/v1/dead-letters:dismiss
        POST /api/v1/dead-letters:replay
        POST /api/v1/executions/{ref}/requeue
        POST /api/v1/jobs/{ref}/force-complete
        POST /api/v1/jobs/{ref}/skip
        POST /api/v1/runs/{run_id}/rerun
        POST /api/v1/runs/{run_id}/steps/{step}/force-complete
        POST /api/v1/runs/{run_id}/steps/{step}/skip
    """,
    "admin": """
        PATCH /api/v1/queues
        PATCH /api/v1/queues/{name}
        POST /api/v1/reservations
        DELETE /api/v1/reservations/{name}
        DELETE /api/v1/roles/{name}
        PUT /api/v1/roles/{name}
        POST /api/v1/secret-keys/encrypt
        POST /api/v1/secret-keys/rotate
        POST /api/v1/users
        PATCH /api/v1/users/{name}
        DELETE /api/v1/users/{name}
        POST /api/v1/users/{name}/block
        POST /api/v1/users/{name}/unblock
        POST /api/v1/worker-tokens
        POST /api/v1/workers/{name}/drain
        POST /api/v1/workers/{name}/resume
    """,
    "secrets": """
        PUT /api/v1/secrets/{name}
        DELETE /api/v1/secrets/{name}
        POST /api/v1/secrets/{name}/rotate
    """,
    "cluster": """
        POST /api/v1/tenants
        PATCH /api/v1/tenants/{name}
        DELETE /api/v1/tenants/{name}
        POST /api/v1/tenants/{name}/resume
        POST /api/v1/tenants/{name}/suspend
        POST /api/v1/tenants/{name}/tokens
    """,
    "tokens": """
        POST /api/v1/tokens
        POST /api/v1/tokens/{ref}/rotate
        DELETE /api/v1/tokens/{ref}
    """,
    "read": """
        DELETE /api/v1/browser-sessions
        DELETE /api/v1/browser-sessions/{ref}
        POST /api/v1/login-links
        POST /api/v1/manifests:diff
        POST /api/v1/schedules:preview
    """,
}
"""Without the routes of workers, which all need `worker`."""

GUARDED_READS = {
    "operate": """
        /api/v1/audit
        /api/v1/audit:export
        /api/v1/audit:verify
        /api/v1/dead-letters
        /api/v1/dead-letters/{ref}
        /api/v1/dead-letters:groups
    """,
    "admin": """
        /api/v1/doctor
        /api/v1/secret-keys
        /api/v1/system/shards
        /api/v1/users
    """,
    "cluster": """
        /api/v1/tenants
        /api/v1/tenants/{name}
        /api/v1/tenants/{name}/export
    """,
    "tokens": """
        /api/v1/tokens
    """,
}

FORMS = {
    "write": """
        /alerts/rules/{ref}
        /alerts/rules/{ref}/reset
        /backfills/{ref}/cancel
        /backfills/{ref}/pause
        /backfills/{ref}/resume
        /channels/{ref}/enable
        /channels/{ref}/test
        /executions/{ref}/cancel
        /executions:bulk
        /jobs/{ref}/delete
        /jobs/{ref}/edit
        /jobs/{ref}/pause
        /jobs/{ref}/resume
        /jobs/{ref}/rollback
        /jobs/{ref}/run
        /jobs/{ref}/schedule
        /jobs/{ref}/yaml
        /jobs:bulk
        /new
        /new.yaml
        /runs/{ref}/cancel
        /runs/{ref}/decide
        /settings/blackouts
        /settings/blackouts/{ref}/end
        /silences
        /silences/{ref}/delete
        /triggers
        /triggers/{ref}/delete
        /triggers/{ref}/pause
        /triggers/{ref}/resume
        /triggers/{ref}/rotate
        /ui/job-preview
        /ui/workflow-preview
        /workflows/new
        /workflows/{ref}/edit
        /workflows/{ref}/rollback
        /workflows/{ref}/run
    """,
    "operate": """
        /failures/group/claim
        /failures/group/dismiss
        /failures/group/replay
        /failures/{ref}/claim
        /failures/{ref}/dismiss
        /failures/{ref}/note
        /failures/{ref}/release
        /failures/{ref}/replay
        /runs/{ref}/rerun
    """,
    "admin": """
        /queues/{ref}/pause
        /queues/{ref}/resume
        /workers/{ref}/drain
        /workers/{ref}/resume
    """,
    "exceed": """
        /queues/duration-requests/{ref}
    """,
    "cluster": """
        /settings/tenants/{ref}/resume
        /settings/tenants/{ref}/suspend
    """,
    "tokens": """
        /settings/tokens
        /settings/tokens/{ref}/revoke
    """,
    "read": """
        /settings/sessions/{ref}/end
        /settings/sessions/end-others
    """,
}
"""Parts of two of them need `operate`: requeueing in `/executions:bulk`, skipping and completing in `/decide`."""


def lines(text: str) -> set[str]:
    return {line.strip() for line in text.splitlines() if line.strip()}


@pytest.mark.parametrize("scope", CHANGES)
def test_each_change_needs_the_scope_that_was_decided(scope: str) -> None:
    found = {f"{e.method} {e.path}" for e in endpoints() if e.method != "GET" and e.scope == scope}
    assert found == lines(CHANGES[scope])


def test_every_other_change_is_of_workers() -> None:
    scopes = {e.scope for e in endpoints() if e.method != "GET"}
    assert scopes == {*CHANGES, "worker"}


@pytest.mark.parametrize("scope", GUARDED_READS)
def test_reads_that_need_more_than_read(scope: str) -> None:
    assert {e.path for e in endpoints() if e.method == "GET" and e.scope == scope} == lines(GUARDED_READS[scope])


@pytest.mark.parametrize("scope", FORMS)
def test_each_form_needs_the_scope_that_was_decided(scope: str) -> None:
    pages = every_page()
    assert {page.path for page in pages if page.post is not None and page.write_scope == scope} == lines(FORMS[scope])
    assert {page.write_scope for page in pages if page.post is not None} == set(FORMS)
