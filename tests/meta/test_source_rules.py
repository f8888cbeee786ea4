"""The tree keeps the house rules, and each rule notices what it forbids."""

from __future__ import annotations

import pytest

from tools.source_rules import check_text, check_tree


def test_the_tree_keeps_the_house_rules() -> None:
    assert [str(finding) for finding in check_tree()] == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("src/mainspring/results/settle.py", "# a canceled execution"),
        ("docs/guide.md", "Use this to abort an execution."),
        ("docs/guide.md", "You can kill the job from the page."),
        ("docs/guide.md", "Look into the DLQ."),
        ("docs/guide.md", "We promise exactly-once execution."),
        ("src/mainspring/web/templates/job.html", "<button>Revoke job</button>"),
        ("README.md", "Unpack it into /" + "home/someone/mainspring."),
        ("docs/guide.md", "This was issue " + "12."),
        ("src/mainspring/store/utils.py", ""),
        ("src/mainspring/helpers/text.py", ""),
        ("src/mainspring/dispatch/claim.py", "class ClaimManager: ..."),
        ("src/mainspring/api/jobs.py", "QUERY = 'SELECT job_id FROM jobs'"),
        ("src/mainspring/api/jobs.py", "QUERY = f'update {x} set y' + 'DELETE FROM jobs'"),
        ("src/mainspring/api/jobs.py", "await connection.execute('select now()')"),
        ("tests/flow/test_fire.py", "await asyncio.sleep(0.1)"),
        ("tests/flow/test_fire.py", "time.sleep(delay)"),
    ],
)
def test_a_breach_is_noticed(path: str, text: str) -> None:
    assert [finding.path for finding in check_text(path, text)] == [path]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("src/mainspring/results/settle.py", "# a cancelled execution"),
        ("src/mainspring/worker/transport/api_client.py", "transport.abort()"),
        ("docs/guide.md", "The server aborts the statement.  <!-- words: ok, PostgreSQL's word -->"),
        ("src/mainspring/store/jobs.py", "QUERY = 'SELECT job_id FROM jobs'"),
        ("src/mainspring/api/jobs.py", '"""Select a job from the list, then UPDATE it."""'),
        ("src/mainspring/cli/jobs.py", "HELP = 'Select which jobs to list.'"),
        ("tests/flow/test_fire.py", "await asyncio.sleep(0)"),
        ("tests/flow/test_fire.py", "await virtual_clock.sleep(5)"),
    ],
)
def test_honest_code_is_left_alone(path: str, text: str) -> None:
    assert list(check_text(path, text)) == []
