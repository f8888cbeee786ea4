"""Applies manifests: compare with what is on the server, plan, and write all changes in one transaction.

    manifests ──plan──▶ changes ──write──▶ one transaction: queues, calendars, channels, rules, jobs, workflows, ...

`kinds` has one adapter per kind of object; the writes themselves are those of `intake` and `alerts`.
"""

from __future__ import annotations

from mainspring.apply.changes import Requester
from mainspring.apply.export import export_page
from mainspring.apply.plan import plan_of
from mainspring.apply.write import apply_manifests, diff_manifests

__all__ = ["Requester", "apply_manifests", "diff_manifests", "export_page", "plan_of"]
