"""Nightly extract, transform and load with shell commands."""

from datetime import datetime, timedelta

from airflow import DAG
from airflow.operators.bash import BashOperator

default_args = {
    "owner": "data",
    "depends_on_past": False,
    "email": ["data@example.org"],
    "email_on_failure": True,
    "retries": 2,
    "retry_delay": timedelta(minutes=5),
}

with DAG(
    "etl_bash",
    default_args=default_args,
    description="Nightly load of the warehouse",
    schedule="0 2 * * *",
    start_date=datetime(2024, 1, 1),
    catchup=False,
    tags=["warehouse"],
) as dag:
    extract = BashOperator(task_id="extract", bash_command="extract.sh --all")
    transform = BashOperator(task_id="transform", bash_command="transform.sh", retries=3)
    load = BashOperator(task_id="load", bash_command="load.sh", execution_timeout=timedelta(hours=1))

    extract >> transform >> load
