from datetime import timedelta

from celery import Celery
from celery.schedules import crontab, solar

raise SystemExit("this file must not be executed")

app = Celery("shop", broker="redis://localhost")
app.conf.timezone = "Europe/Berlin"

EVERY_NIGHT = crontab(minute=30, hour=2)

app.conf.beat_schedule = {
    "add-every-30-seconds": {"task": "shop.tasks.add", "schedule": 30.0, "kwargs": {"x": 16, "y": 16}},
    "clean-up": {"task": "shop.tasks.clean_up", "schedule": timedelta(hours=1)},
    "nightly": {"task": "shop.tasks.nightly", "schedule": EVERY_NIGHT, "options": {"queue": "long"}},
    "every-quarter": {"task": "shop.tasks.poll", "schedule": crontab(minute="*/15")},
    "monday-morning": {"task": "shop.tasks.weekly", "schedule": crontab(hour=7, minute=30, day_of_week=1)},
    "weekend-wrap": {"task": "shop.tasks.wrap", "schedule": crontab(minute=0, hour="22-2", day_of_week="fri-sat")},
    "thirteenth-friday": {
        "task": "shop.tasks.bad_luck",
        "schedule": crontab(0, 0, day_of_month="13", day_of_week="friday"),
    },
    "lists": {"task": "shop.tasks.lists", "schedule": crontab(minute=[0, 20, 40], hour="8,12,16", month_of_year="*/3")},
    "at-sunset": {"task": "shop.tasks.lights", "schedule": solar("sunset", -37.81753, 144.96715)},
    "with-args": {"task": "shop.tasks.add", "schedule": 60, "args": (16, 16)},
}
