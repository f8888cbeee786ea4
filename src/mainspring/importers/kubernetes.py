"""Kubernetes CronJobs from YAML. Schedules follow robfig/cron, which the controller uses."""

from __future__ import annotations

from typing import Any

from mainspring.domain.container import ContainerTask, Pull
from mainspring.domain.job import JobSpec, Misfire, Overlap
from mainspring.domain.retry import RetryPolicy
from mainspring.importers.build import build_job
from mainspring.importers.crontab import MACROS
from mainspring.importers.located import Items, Mapping, line_of, read_yaml
from mainspring.importers.names import Names
from mainspring.importers.plan import Entry, Plan, ReadOptions, SourceFile, Unsupported
from mainspring.importers.rules.days import DayRule
from mainspring.importers.rules.field_sets import MONTHS, SUNDAY_0, FieldError, FieldKind, read_field
from mainspring.importers.rules.wall_clock import WallRule
from mainspring.importers.schedule_writer import check_zone, write_schedule

KINDS = (
    FieldKind("minute", 0, 59, question_mark=True),
    FieldKind("hour", 0, 23, question_mark=True),
    FieldKind("day of month", 1, 31, question_mark=True),
    FieldKind("month", 1, 12, MONTHS, question_mark=True),
    FieldKind("day of week", 0, 6, SUNDAY_0, question_mark=True),
)
_OVERLAP: dict[str, Overlap] = {"Allow": "allow", "Forbid": "skip", "Replace": "cancel_running"}
_PULL: dict[str, Pull] = {"IfNotPresent": "missing", "Always": "always", "Never": "never"}
_BACKOFF_LIMIT = 6
"""The default of Kubernetes."""
_CARRIED_POD = {"containers", "restartPolicy", "activeDeadlineSeconds", "terminationGracePeriodSeconds"}
_CARRIED_CONTAINER = {
    "name", "image", "command", "args", "env", "envFrom", "workingDir", "imagePullPolicy", "resources", "volumeMounts",
    "securityContext", "terminationMessagePath", "terminationMessagePolicy",
}  # fmt: skip
_POD_HINTS = {
    "serviceAccountName": "give the worker the credentials that the job needs",
    "serviceAccount": "give the worker the credentials that the job needs",
    "volumes": "use artifacts, or a worker with a sandbox that has the folder",
    "nodeSelector": "start workers on those nodes with --labels, and import with --labels",
    "affinity": "start workers on those nodes with --labels, and import with --labels",
    "tolerations": "start workers on those nodes with --labels, and import with --labels",
    "imagePullSecrets": "log the worker's container engine in to the registry",
    "priorityClassName": "set a priority with: mainspring jobs edit NAME --priority",
}


def read_kubernetes(files: list[SourceFile], options: ReadOptions) -> Plan:
    """Read CronJobs into a plan; other kinds of objects are passed over."""
    plan, names = Plan("k8s"), Names(options.prefix)
    for file in files:
        for document in read_yaml(file):
            for found in _cron_jobs(document):
                _read(plan, names, file, found, options)
    return plan


def _cron_jobs(document: Any) -> list[Mapping]:
    if not isinstance(document, Mapping):
        return []
    if document.get("kind") in ("List", "CronJobList"):
        items = document.get("items")
        found = [item for item in items if isinstance(item, Mapping)] if isinstance(items, Items) else []
        return [item for item in found if item.get("kind", "CronJob") == "CronJob"]
    return [document] if document.get("kind") == "CronJob" else []


def _read(plan: Plan, names: Names, file: SourceFile, found: Mapping, options: ReadOptions) -> None:
    meta = _mapping(found, "metadata")
    name = str(meta.get("name") or meta.get("generateName") or "cronjob")
    try:
        spec = _mapping(found, "spec")
        text = spec.get("schedule")
        if not isinstance(text, str):
            raise Unsupported("the CronJob has no schedule", "add spec.schedule", found.line_of("spec"))
        rule = read_rule(text, str(spec.get("timeZone") or ""), options.timezone, spec.line_of("schedule"))
        if not spec.get("timeZone") and "TZ=" not in text and rule.zone != "UTC":
            note = f"no timeZone: read in {rule.zone}, from --tz"
            plan.find("note", file.name, spec.line_of("schedule"), name, note, "check the zone of the controller")
        job = _job(plan, file, options, names.take(name), spec, rule)
        plan.add(Entry(file.name, found.line, job, rule, text))
    except Unsupported as error:
        plan.find("unsupported", file.name, error.line or found.line, name, error.message, error.hint)


def read_rule(text: str, zone: str, default_zone: str, line: int | None = None) -> WallRule:
    """When the controller fires: by the wall clock, in both passes of a repeated hour, and not for a skipped one."""
    words = text.split()
    if words and words[0].startswith(("TZ=", "CRON_TZ=")):
        zone, words = words[0].partition("=")[2], words[1:]
    zone = check_zone(zone or default_zone)
    if words[:1] == ["@every"]:
        raise Unsupported("@every counts from the start of the controller", "use spec.schedule with fields", line)
    if len(words) == 1 and words[0] in MACROS:
        words = MACROS[words[0]].split()
    if len(words) != 5:
        raise Unsupported(f"{text[:60]!r} does not have five fields", "write for example 0 2 * * *", line)
    try:
        fields = [read_field(word, kind) for word, kind in zip(words, KINDS, strict=True)]
    except FieldError as error:
        raise Unsupported(str(error), "correct spec.schedule", line) from None
    minute, hour, day, month, weekday = fields
    # Unlike in cron, a star with a step does not count as a star.
    either = not (_is_star(words[2]) or _is_star(words[4]))
    days = DayRule(day.numbers, weekday.numbers, month.numbers, either=either)
    return WallRule(minute.numbers, hour.numbers, days, zone=zone, gap="skip", passes="both")


def _is_star(word: str) -> bool:
    return any(term in ("*", "?", "*/1", "?/1") for term in word.split(","))


def _job(plan: Plan, file: SourceFile, options: ReadOptions, name: str, spec: Mapping, rule: WallRule) -> JobSpec:
    template = _mapping(spec, "jobTemplate")
    job = _mapping(template, "spec")
    pod = _mapping(_mapping(job, "template"), "spec")
    task = _task(plan, file, name, pod)
    container = pod["containers"][0]
    deadline = job.get("activeDeadlineSeconds") or pod.get("activeDeadlineSeconds")
    backoff = job.get("backoffLimit", _BACKOFF_LIMIT)
    if not isinstance(backoff, int) or not 0 <= backoff <= 1000:
        raise Unsupported(f"backoffLimit {backoff!r} is out of range", "0 to 1000", job.line_of("backoffLimit"))
    for key in ("completions", "parallelism"):
        if job.get(key) not in (None, 1):
            hint = "use a workflow whose step has a map"
            raise Unsupported(f"{key}: {job[key]} starts several pods", hint, job.line_of(key))
    starting = spec.get("startingDeadlineSeconds")
    fields: dict[str, Any] = {
        "overlap": _OVERLAP.get(str(spec.get("concurrencyPolicy", "Allow")), "allow"),
        "paused": bool(spec.get("suspend", False)),
        "retries": RetryPolicy(max=backoff, base="10s", cap="6m", factor=2.0, jitter="none"),
        "timeout": _seconds(job, "activeDeadlineSeconds", deadline) or options.timeout,
        "start_by": _seconds(spec, "startingDeadlineSeconds", starting),
        "misfire": Misfire(policy="latest"),
        "resources": _resources(container),
    }
    return build_job(plan, options, name=name, task=task, schedule=write_schedule(rule), **fields)


def _task(plan: Plan, file: SourceFile, name: str, pod: Mapping) -> ContainerTask:
    containers = pod.get("containers")
    if not isinstance(containers, Items) or not containers or not isinstance(containers[0], Mapping):
        raise Unsupported("the pod has no container", "add jobTemplate.spec.template.spec.containers", pod.line)
    if len(containers) > 1 or pod.get("initContainers"):
        line = pod.line_of("initContainers" if pod.get("initContainers") else "containers")
        raise Unsupported("the pod has several containers", "make a workflow with one step per container", line)
    container: Mapping = containers[0]
    for key in sorted(pod.keys() - _CARRIED_POD):
        hint = _POD_HINTS.get(key, "check whether the job needs it")
        plan.find("dropped", file.name, pod.line_of(key), name, f"{key} of the pod is not carried over", hint)
    for key in sorted(container.keys() - _CARRIED_CONTAINER | container.keys() & {"volumeMounts"}):
        hint = "use artifacts, or check whether the job needs it"
        plan.find(
            "dropped", file.name, container.line_of(key), name, f"{key} of the container is not carried over", hint
        )
    for text in (*_texts(container, "command"), *_texts(container, "args")):
        if "$(" in text and not text.lstrip().startswith("#") and "sh" not in str(container.get("command")):
            message = f"{text[:40]!r}: Kubernetes would replace $(NAME) with a variable"
            plan.find("note", file.name, container.line, name, message, "write the value, or run it by sh -c")
            break
    security = container.get("securityContext")
    user = security.get("runAsUser") if isinstance(security, Mapping) else None
    return ContainerTask(
        image=str(container.get("image", "")),
        command=_texts(container, "command"),
        args=_texts(container, "args"),
        env=_env(plan, file, name, container),
        workdir=container.get("workingDir"),
        pull=_PULL.get(str(container.get("imagePullPolicy")), "missing"),
        user=None if user is None else str(user),
        network=True,
    )


def _env(plan: Plan, file: SourceFile, name: str, container: Mapping) -> dict[str, str]:
    values: dict[str, str] = {}
    hint = "set it for the worker and pass it on with --pass-env, or in the task's env"
    for key in ("envFrom", "env"):
        entries = container.get(key)
        for entry in entries if isinstance(entries, Items) else ():
            if not isinstance(entry, Mapping):
                continue
            source = entry.get("valueFrom") if key == "env" else entry
            if isinstance(source, Mapping) and (key == "envFrom" or source):
                kind = next((kind for kind in source if kind != "prefix"), "a reference")
                what = "the secret" if "secret" in kind.lower() else kind
                label = str(entry.get("name", "all of its variables"))
                message = f"{label}: {what} is not carried over"
                plan.find("dropped", file.name, line_of(entry), name, message, hint)
            elif isinstance(entry.get("name"), str):
                values[entry["name"]] = "" if entry.get("value") is None else str(entry["value"])
    return values


def _resources(container: Mapping) -> dict[str, Any]:
    wanted = container.get("resources")
    if not isinstance(wanted, Mapping):
        return {}
    found = wanted.get("requests") or wanted.get("limits")
    if not isinstance(found, Mapping):
        return {}
    amounts: dict[str, Any] = {}
    for key in ("cpu", "memory"):
        value = found.get(key)
        if isinstance(value, str) and key == "cpu" and value.endswith("m") and value[:-1].isdecimal():
            value = int(value[:-1]) / 1000
        if isinstance(value, str | int | float):
            amounts[key] = value
    return amounts


def _seconds(owner: Mapping, key: str, value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 10**9:
        raise Unsupported(f"{key}: {value!r} is not a number of seconds", "write a number", owner.line_of(key))
    return f"{value}s"


def _texts(container: Mapping, key: str) -> tuple[str, ...]:
    values = container.get(key)
    return tuple(str(value) for value in values) if isinstance(values, Items) else ()


def _mapping(owner: Mapping, key: str) -> Mapping:
    value = owner.get(key)
    if isinstance(value, Mapping):
        return value
    empty = Mapping()
    empty.line = owner.line_of(key)
    return empty
