"""A Django site in one file that stores an order and submits its receipt in one transaction.

    DATABASE_NAME=mainspring DATABASE_USER=shop python shop_django.py runserver

The database is Mainspring's; `SELECT mainspring.allow_submit('shop')` allows the role `shop` to submit.
"""

from __future__ import annotations

import json
import os
import sys

import django
from django.conf import settings
from django.core.management import execute_from_command_line
from django.core.wsgi import get_wsgi_application
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from shop_jobs import Order, send_receipt

settings.configure(
    ROOT_URLCONF=__name__,
    SECRET_KEY=os.environ.get("SECRET_KEY", "only for this example"),
    ALLOWED_HOSTS=["127.0.0.1", "localhost"],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": os.environ["DATABASE_NAME"],
            "USER": os.environ["DATABASE_USER"],
            "PASSWORD": os.environ.get("DATABASE_PASSWORD", ""),
            "HOST": os.environ.get("DATABASE_HOST", ""),
            "PORT": os.environ.get("DATABASE_PORT", ""),
        }
    },
)
django.setup()


def create_order(request: HttpRequest) -> HttpResponse:
    new = json.loads(request.body)
    try:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute(
                    "INSERT INTO orders (address, cents) VALUES (%s, %s) RETURNING number",
                    [new["address"], new["cents"]],
                )
                (number,) = cursor.fetchone()
            order = Order(number, new["address"], new["cents"])
            receipt = send_receipt.submit(conn=connection, key=f"receipt-{number}", order=order)
            if order.cents < 0:
                raise ValueError("an order costs something")  # rolls back, with the receipt
    except ValueError as error:
        return JsonResponse({"error": str(error)}, status=422)
    return JsonResponse({"number": number, "receipt": str(receipt.execution_id)}, status=201)


urlpatterns = [path("orders", create_order)]
application = get_wsgi_application()

if __name__ == "__main__":
    execute_from_command_line(sys.argv)
