from datetime import datetime

from apscheduler.schedulers.blocking import BlockingScheduler
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger
from pytz import timezone

from shop.jobs import report, tick

raise SystemExit("this file must not be executed")

scheduler = BlockingScheduler(timezone="America/New_York")


@scheduler.scheduled_job("cron", day_of_week="mon-fri", hour="9-17", minute="*/20", id="office")
def office():
    pass


@scheduler.scheduled_job("interval", minutes=5)
def five():
    pass


scheduler.add_job(report, "cron", hour=3, minute=15, id="report", kwargs={"full": True}, max_instances=3)
scheduler.add_job(tick, "interval", seconds=90, start_date="2026-01-01 00:00:00", id="tick")
scheduler.add_job("shop.jobs:later", "date", run_date=datetime(2031, 5, 1, 12, 30), id="later")
scheduler.add_job(report, CronTrigger.from_crontab("0 4 * * 0", timezone="UTC"), id="weekly")
scheduler.add_job(report, trigger=CronTrigger(day="last", hour=23), id="month-end")
scheduler.add_job(report, CronTrigger(day="2nd tue", hour=6, timezone=timezone("Europe/Berlin")), id="patch-day")
scheduler.add_job(tick, IntervalTrigger(hours=2), id="two-hours", jitter=60)
scheduler.add_job(report, "cron", week="1-10", id="by-week")
scheduler.add_job(report, "cron", hour=2, minute=30, id="in-the-gap")
