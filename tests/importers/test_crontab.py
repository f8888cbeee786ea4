"""Crontabs of many shapes become jobs with the fires that cron would have."""

from __future__ import annotations

import random
import subprocess
from datetime import UTC, datetime, timedelta

import pytest
from cronsim import CronSim

from mainspring.domain.job import JobSpec, ShellTask
from mainspring.domain.schedule.spec import ScheduleSpec
from mainspring.importers.crontab import read_rule, split_percent
from tests.support.cron_oracle import Oracle, changes
from tests.support.imports import NOW_MS, SAMPLES, finding, found, proved, read, sample
from tests.support.seeds import SEED

CRONTABS = sorted((SAMPLES / "crontabs").glob("*.cron"))
REFUSED = {
    "macros.cron": {8},
    "gitlab-runner.cron": {3},
    "broken-lines.cron": {1, 2, 3, 4, 5, 6, 8},
}
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "Asia/Kathmandu")


def job(plan, name: str) -> JobSpec:
    spec = proved(plan)[name].entry.spec
    assert isinstance(spec, JobSpec)
    return spec


def test_there_are_twenty_crontabs() -> None:
    assert len(CRONTABS) >= 20


@pytest.mark.parametrize("zone", ZONES[:4])
@pytest.mark.parametrize("path", CRONTABS, ids=lambda path: path.name)
def test_fires_are_equal(path, zone: str) -> None:
    plan = read("crontab", sample(path), timezone=zone, system=".system." in path.name)
    entries = proved(plan)
    assert {line for line, _ in found(plan, "unsupported")} == REFUSED.get(path.name, set())
    lines = [line for line in path.read_text().splitlines() if line.strip() and line.lstrip()[0] not in "#\"'"]
    schedules = [line for line in lines if "=" not in line.split()[0] and line.split()[1:2] != ["="]]
    assert len(entries) == len(schedules) - len(REFUSED.get(path.name, set()))
    for entry in entries.values():
        assert entry.comparison is not None and entry.comparison.is_equal
        assert entry.comparison.fires >= 24  # 29 February, in a century
        if zone == "Europe/Berlin" and path.name != "zones.cron":
            assert entry.comparison.changes == 4


def test_a_job_runs_as_cron_would_run_it() -> None:
    plan = read("crontab", sample(SAMPLES / "crontabs" / "web-server.cron"))
    spec = job(plan, "rotate-logs")
    path = "/usr/local/sbin:/usr/local/bin:/sbin:/bin:/usr/sbin:/usr/bin"
    assert spec.task == ShellTask(
        argv=("/bin/bash", "-c", "/usr/sbin/logrotate /etc/logrotate.d/shop"), env={"PATH": path}
    )
    assert spec.schedule == ScheduleSpec(cron="0 0 * * *")
    assert (spec.overlap, spec.misfire.policy, spec.retries.max, spec.timeout) == ("allow", "skip", 0, "24h")
    assert spec.metadata == {"imported_from": "crontab"}
    assert set(proved(plan)) == {"rotate-logs", "renew-certificates", "curl"}
    mail = finding(plan, "MAILTO=webmaster")
    assert (mail.severity, mail.line) == ("dropped", 4) and "channels" in mail.hint


def test_zone_and_clock_changes_follow_cron() -> None:
    plan = read("crontab", sample(SAMPLES / "crontabs" / "zones.cron"), timezone="Europe/Berlin")
    # cron sees only the clock changes of its own zone: jobs of other zones follow the wall clock.
    assert job(plan, "settle").schedule == ScheduleSpec(
        cron="30 1 * * *", timezone="America/New_York", gap="skip", overlap_hour="both"
    )
    assert job(plan, "nightly").schedule == ScheduleSpec(cron="30 2 * * *", timezone="Europe/Berlin")


def test_the_user_of_a_system_crontab_is_named() -> None:
    plan = read("crontab", sample(SAMPLES / "crontabs" / "monitoring.system.cron"), system=True)
    assert (3, "submit_check") in found(plan, "dropped")
    assert finding(plan, "_chrony").hint.startswith("start a worker as _chrony")


@pytest.mark.parametrize(
    ("text", "command", "stdin"),
    [
        ("cat", "cat", None),
        ("date +\\%F", "date +%F", None),
        ("cat%a%b", "cat", "a\nb"),
        ("cat%", "cat", ""),
        ("cat%%x\\%", "cat", "\nx%"),
    ],
)
def test_percent_signs(text: str, command: str, stdin: str | None) -> None:
    assert split_percent(text) == (command, stdin)


def test_input_after_a_percent_sign_reaches_the_command() -> None:
    plan = read("crontab", "0 0 * * * tr a-z A-Z # loud%one $HOME%two\n")
    (entry,) = proved(plan).values()
    task = entry.entry.spec.task  # type: ignore[union-attr]
    assert isinstance(task, ShellTask) and task.shell
    done = subprocess.run(["/bin/sh", "-c", task.argv[0]], capture_output=True, text=True, check=True)
    assert done.stdout == "ONE $HOME\nTWO\n"


def test_what_cannot_be_imported_says_where_and_what_to_do() -> None:
    plan = read("crontab", sample(SAMPLES / "crontabs" / "broken-lines.cron"))
    list(proved(plan))
    assert found(plan, "unsupported") == [
        (1, "too-late"),
        (2, "* * * *"),
        (3, "backwards"),
        (4, "0~59 3 * * * /bin/random"),
        (5, "open-step"),
        (8, "hello"),
        (6, "never"),
    ]
    assert all(one.hint for one in plan.unsupported)
    assert "61 is out of range" in finding(plan, "61").message
    assert "H(0-59)" in finding(plan, "random value").hint
    reboot = finding(read("crontab", "@reboot /bin/x\n"), "@reboot")
    assert "systemd unit" in reboot.hint
    template = finding(read("crontab", "* * * * * docker ps --format '{{.Names}}'\n"), "{{.Names}}")
    assert "script file" in template.hint


def test_names_are_unique_and_stable() -> None:
    text = "0 1 * * * /opt/job.sh a\n0 2 * * * /opt/job.sh b\n# nightly job\n0 3 * * * /opt/x\n"
    names = list(proved(read("crontab", text, prefix="old-")))
    assert names == ["old-job", "old-job-2", "old-nightly-job"]
    assert list(proved(read("crontab", text, prefix="old-"))) == names


def test_owner_and_labels() -> None:
    plan = read("crontab", "0 1 * * * /opt/job\n", owner="ops", labels={"zone": "eu"})
    spec = job(plan, "job")
    assert (spec.metadata["owner"], spec.labels) == ("ops", {"zone": "eu"})


def random_field(rng: random.Random, low: int, high: int) -> str:
    a, b = sorted(rng.sample(range(low, high + 1), 2))  # cronsim reads 5-5/2 as 5/2
    step = rng.randint(1, high - low)
    return rng.choice(["*", "*", f"*/{step}", str(a), f"{a}-{b}", f"{a}-{b}/{step}", f"{a},{b}"])


@pytest.mark.parametrize("zone", ZONES)
def test_the_rule_of_cron_agrees_with_a_walk_over_every_minute(zone: str) -> None:
    """The evaluator of the report against the oracle of the tests, around clock changes; the two share no code."""
    rng = random.Random(f"{SEED}{zone}")
    for _ in range(40):
        limits = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
        text = " ".join(random_field(rng, low, high) for low, high in limits)
        oracle = Oracle(text, zone, gap="next_valid", overlap_hour="first", day_and=False)
        rule = read_rule(text, zone)
        for change in changes(zone, 2027) or [datetime(2027, 2, 28, tzinfo=UTC)]:
            start, end = change - timedelta(hours=30), change + timedelta(hours=30)
            end_ms = round(end.timestamp() * 1000)
            ours = []
            for fire in rule.fires(round(start.timestamp() * 1000)):
                if fire > end_ms:
                    break
                ours.append(fire)
            assert ours == [round(fire.timestamp() * 1000) for fire in oracle.fires(start, end)], text


def test_the_rule_of_cron_agrees_with_cronsim() -> None:
    rng = random.Random(f"{SEED}cronsim")
    for _ in range(60):
        minute, hour = random_field(rng, 0, 59), random_field(rng, 0, 23)
        day, month, weekday = random_field(rng, 1, 28), random_field(rng, 1, 12), random_field(rng, 0, 6)
        text = f"{minute} {hour} {day} {month} {weekday}"
        start = datetime.fromtimestamp(NOW_MS / 1000, UTC)
        if "*/" in day or "*/" in weekday:
            continue  # another day rule
        theirs = [round(fire.timestamp() * 1000) for fire, _ in zip(CronSim(text, start), range(50), strict=False)]
        ours = [fire for fire, _ in zip(read_rule(text, "UTC").fires(NOW_MS), range(50), strict=False)]
        assert ours == theirs, text
