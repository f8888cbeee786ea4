from __future__ import annotations

from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.cli.spec import changed, completed
from mainspring.display.definitions import merge_patch

NAMES = (
    "cron every at rrule dtstart tz calendar roll jitter max_fires queue priority retries timeout cwd overlap misfire"
    " delivery description pause_after_failures start_by finish_by max_gap spot"
)
NONE: dict[str, Any] = {**dict.fromkeys(NAMES.split()), "env": {}}
SPEC: dict[str, Any] = {
    "name": "x",
    "task": {"kind": "shell", "argv": ["true"], "env": {"A": "1"}},
    "schedule": {"cron": "0 2 * * *", "every": None, "timezone": "Europe/Berlin", "gap": "skip"},
    "retries": {"max": 3, "base": "60s"},
}


def test_flags_that_were_not_given_change_nothing() -> None:
    assert changed(SPEC, NONE, ()) == SPEC


def test_flags_change_what_they_name_and_leave_the_rest_of_it() -> None:
    flags = {
        **NONE,
        "queue": "long",
        "retries": 5,
        "misfire": "all",
        "env": {"B": "2"},
        "cwd": "/",
        "priority": 0,
    }
    wanted = changed(SPEC, flags, ("echo", "hi"))
    assert wanted == {
        **SPEC,
        "queue": "long",
        "priority": 0,
        "retries": {"max": 5, "base": "60s"},
        "misfire": {"policy": "all"},
        "task": {"kind": "shell", "argv": ["echo", "hi"], "env": {"A": "1", "B": "2"}, "cwd": "/"},
    }
    assert SPEC["task"]["argv"] == ["true"]


def test_the_whole_retry_policy_has_flags() -> None:
    flags = {
        "retry_cap": "5m", "retry_factor": 3.0, "retry_jitter": "decorrelated", "retry_on": ("failed",),
        "no_retry_exit_code": (2, 3), "retry_error": ("TimeoutError",), "retry_exit_code": (),
    }  # fmt: skip
    assert changed(SPEC, {**NONE, **flags}, ())["retries"] == {
        "max": 3,
        "base": "60s",
        "cap": "5m",
        "factor": 3.0,
        "jitter": "decorrelated",
        "on": ("failed",),
        "never_exit_codes": (2, 3),
        "only_errors": ("TimeoutError",),
    }


def test_a_schedule_of_the_same_kind_keeps_its_options_and_another_only_the_zone() -> None:
    cron = changed(SPEC, {**NONE, "cron": "0 3 * * *"}, ())["schedule"]
    assert cron == {"cron": "0 3 * * *", "timezone": "Europe/Berlin", "gap": "skip"}
    every = changed(SPEC, {**NONE, "every": "5s"}, ())["schedule"]
    assert every == {"every": "5s", "timezone": "Europe/Berlin"}
    rule = changed(SPEC, {**NONE, "rrule": "FREQ=DAILY", "dtstart": "2027-01-01T09:00"}, ())["schedule"]
    assert rule == {"rrule": "FREQ=DAILY", "dtstart": "2027-01-01T09:00", "timezone": "Europe/Berlin"}
    assert changed({"schedule": rule}, {**NONE, "cron": "@daily"}, ())["schedule"] == {
        "cron": "@daily",
        "timezone": "Europe/Berlin",
    }
    zone = changed(SPEC, {**NONE, "tz": "UTC"}, ())["schedule"]
    assert zone == {**SPEC["schedule"], "timezone": "UTC"}


def test_contradicting_flags_are_refused() -> None:
    with pytest.raises(click.UsageError, match="--cron and --every"):
        changed(SPEC, {**NONE, "cron": "@daily", "every": "5s"}, ())
    with pytest.raises(click.UsageError, match="--dtstart needs a schedule"):
        changed({"name": "x"}, {**NONE, "dtstart": "2027-01-01"}, ("true",))
    with pytest.raises(click.UsageError, match="--tz needs a schedule"):
        changed({"name": "x"}, {**NONE, "tz": "UTC"}, ("true",))


def test_where_and_how_often_it_runs() -> None:
    flags = {
        **NONE, "labels": {"zone": "eu"}, "resources": {"gpu": "1"}, "exclusive": True, "concurrency": "a=b=2",
        "rate": "10/m", "estimated_duration": "2h",
    }  # fmt: skip
    wanted = changed({"name": "x"}, flags, ("true",))
    assert wanted["labels"] == {"zone": "eu"} and wanted["resources"] == {"gpu": "1"} and wanted["exclusive"] is True
    assert wanted["concurrency"] == {"key": "a=b", "limit": 2}
    assert wanted["rate"] == {"limit": 10, "per": "1m"}
    assert completed(wanted)["estimated_duration"] == "2h"
    for name, wrong in [("concurrency", "many"), ("concurrency", "k="), ("rate", "10"), ("rate", "k=x/1m")]:
        with pytest.raises(click.UsageError, match=f"--{name}"):
            changed({"name": "x"}, {**NONE, name: wrong}, ("true",))


def apply(target: Any, patch: Any) -> Any:
    """MergePatch as RFC 7396, section 2, writes it."""
    if not isinstance(patch, dict):
        return patch
    target = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        else:
            target[name] = apply(target.get(name), value)
    return target


values = st.recursive(
    st.integers(0, 3) | st.text("ab", max_size=2) | st.lists(st.integers(0, 2), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.sampled_from("abcd"), values, max_size=4)


@given(objects, objects)
def test_a_patch_turns_one_into_the_other_and_is_empty_only_for_the_same(old: Any, new: Any) -> None:
    patch = merge_patch(old, new)
    assert apply(old, patch) == new
    assert bool(patch) == (old != new)


def test_flags_beside_a_schedule_join_it() -> None:
    flags = {**NONE, "calendar": "holidays", "roll": "next", "jitter": "30s", "max_fires": 5}
    schedule = changed(SPEC, flags, ())["schedule"]
    beside = {"calendar": "holidays", "roll": "next", "jitter": "30s", "max_fires": 5}
    assert schedule == {**SPEC["schedule"], **beside}
    with pytest.raises(click.UsageError, match="--max-fires needs a schedule"):
        changed({"name": "x"}, {**NONE, "max_fires": 5}, ())


def test_a_list_of_schedules_is_replaced_or_left_alone() -> None:
    several = {**SPEC, "schedule": [{"every": "5s"}, {"cron": "0 2 * * *"}]}
    assert changed(several, NONE, ()) == several
    assert changed(several, {**NONE, "every": "1m"}, ())["schedule"] == {"every": "1m"}
    with pytest.raises(click.UsageError, match="several schedules"):
        changed(several, {**NONE, "tz": "Asia/Tokyo"}, ())
