"""Create, edit, pause and delete jobs.

Every change is checked, then written in one transaction that holds the shard's row, which orders it with the ticks.
Import the verbs from here: `from mainspring.intake import jobs`, then `jobs.create`.
"""

from __future__ import annotations

from mainspring.intake.jobs.create import create
from mainspring.intake.jobs.delete import delete
from mainspring.intake.jobs.edit import Unchanged, patch, preview_patch, replace_spec, rollback
from mainspring.intake.jobs.pause import pause, resume

__all__ = [
    "Unchanged",
    "create",
    "delete",
    "patch",
    "pause",
    "preview_patch",
    "replace_spec",
    "resume",
    "rollback",
]
