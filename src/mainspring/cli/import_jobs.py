"""`mainspring import`: jobs and workflows from other schedulers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import click

from mainspring.cli.options import current, server_options
from mainspring.cli.spec_options import pair

_SUMMARIES = {
    "crontab": ("crontabs", "Lines as `crontab -l` prints them; with --system, lines with a user, as in /etc/crontab."),
    "systemd": ("systemd timers", "Unit files: .timer and .service together, or a folder of them."),
    "celery": ("Celery beat schedules", "A Python file with beat_schedule, which is read and not executed, or JSON."),
    "apscheduler": ("APScheduler jobs", "A Python file with add_job, which is read and not executed, or JSON."),
    "k8s": ("Kubernetes CronJobs", "YAML, as `kubectl get cronjobs -o yaml` prints it."),
    "quartz": ("Quartz schedules", "quartz_data.xml, or lines such as: nightly = 0 0 2 * * ? -- /usr/bin/backup"),
    "airflow": ("Airflow DAGs", "DAG files, which are read and not executed. Each DAG becomes a workflow."),
    "eventbridge": ("EventBridge schedules", "JSON of `aws events list-rules` or `aws scheduler get-schedule`."),
    "cloud-scheduler": ("Cloud Scheduler jobs", "JSON or YAML of `gcloud scheduler jobs list`."),
}


@click.group("import")
def import_() -> None:
    """Import jobs from cron, systemd, Celery, APScheduler, Kubernetes, Quartz, Airflow, AWS and Google Cloud.

    Every import compares the next 1,000 fires of each job with the rules of its source, and names with file and line
    what cannot be carried over. Nothing of a source is executed.
    """


def _options(function: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option(
            "--accept-differences", is_flag=True, help="Import entries whose fires differ at clock changes, too."
        ),
        click.option("--skip-unsupported", is_flag=True, help="Import the rest if some entries cannot be imported."),
        click.option("--replace", is_flag=True, help="Change jobs that exist and differ, instead of refusing."),
        click.option("--paused", is_flag=True, help="Create all jobs paused."),
        click.option(
            "--timeout",
            default="24h",
            show_default=True,
            metavar="DURATION",
            help="Timeout of jobs whose source sets none.",
        ),
        click.option(
            "--labels",
            multiple=True,
            callback=pair,
            metavar="KEY=VALUE",
            help="Label that the worker must have. Repeatable.",
        ),
        click.option("--owner", metavar="NAME", help="Owner, stored in the metadata of each job."),
        click.option("--prefix", default="", metavar="TEXT", help="Text before each name, such as legacy-."),
        click.option(
            "--tz",
            "--timezone",
            "timezone",
            default="UTC",
            show_default=True,
            metavar="ZONE",
            help="Zone of schedules that name none.",
        ),
        click.option("--dry-run", is_flag=True, help="Print the plan and write nothing. Needs no server."),
    ):
        function = option(function)
    return function


def _command(name: str, title: str, text: str) -> click.Command:
    def run(sources: tuple[str, ...], **given: Any) -> None:
        # Imported late: loading the readers would slow down --help.
        from mainspring.cli.import_run import run_import

        asyncio.run(run_import(name, sources, current(), **given))

    function: Callable[..., None] = server_options(hidden=True)(_options(run))
    if name == "crontab":
        function = click.option("--system", is_flag=True, help="Lines have a user before the command.")(function)
    function = click.argument("sources", nargs=-1, required=True, metavar="SRC...")(function)
    help_text = f"Import {title}.\n\n{text} - reads from stdin."
    return click.command(name, help=help_text, short_help=f"Import {title}.")(function)


for _name, (_title, _text) in _SUMMARIES.items():
    import_.add_command(_command(_name, _title, _text))
