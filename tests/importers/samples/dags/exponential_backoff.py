import datetime as dt

from airflow import DAG
from airflow.operators.bash import BashOperator

with DAG(
    "exponential_backoff",
    schedule="*/20 8-18 * * 1-5",
    start_date=dt.datetime(2025, 2, 3),
    catchup=False,
    dagrun_timeout=dt.timedelta(minutes=15),
    default_args={
        "retries": 5,
        "retry_delay": dt.timedelta(seconds=30),
        "retry_exponential_backoff": True,
        "max_retry_delay": dt.timedelta(minutes=10),
    },
) as dag:
    fetch = BashOperator(
        task_id="fetch.prices",
        bash_command="""
        set -e
        fetch-prices --market all
        """,
    )
    store = BashOperator(task_id="store-prices", bash_command="store-prices")
    fetch >> store
