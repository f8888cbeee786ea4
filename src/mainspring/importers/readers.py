"""The sources that can be imported, and the reader of each."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from mainspring.importers.plan import Plan, ReadOptions, SourceFile

Reader = Callable[[list[SourceFile], ReadOptions], Plan]


@dataclass(frozen=True, slots=True)
class Source:
    """One kind of source: where its reader is, and which files of a folder it reads."""

    module: str
    function: str
    suffixes: tuple[str, ...]

    def reader(self) -> Reader:
        return cast(Reader, getattr(importlib.import_module(f"mainspring.importers.{self.module}"), self.function))


SOURCES = {
    "crontab": Source("crontab", "read_crontab", ("",)),
    "systemd": Source("systemd", "read_systemd", (".timer", ".service")),
    "celery": Source("celery", "read_celery", (".py", ".json")),
    "apscheduler": Source("apscheduler", "read_apscheduler", (".py", ".json")),
    "k8s": Source("kubernetes", "read_kubernetes", (".yaml", ".yml", ".json")),
    "quartz": Source("quartz", "read_quartz_file", (".xml", ".properties", ".txt")),
    "airflow": Source("airflow", "read_airflow", (".py",)),
    "eventbridge": Source("eventbridge", "read_eventbridge", (".json",)),
    "cloud-scheduler": Source("cloud_scheduler", "read_cloud_scheduler", (".json", ".yaml", ".yml")),
}
