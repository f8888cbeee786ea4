from datetime import datetime

import pendulum
from airflow import DAG, Dataset
from airflow.decorators import dag, task
from airflow.operators.bash import BashOperator
from airflow.providers.postgres.operators.postgres import PostgresOperator

with DAG("loop", schedule="@daily", start_date=datetime(2024, 1, 1)) as loop:
    for name in ("a", "b"):
        BashOperator(task_id=f"run_{name}", bash_command="run")

with DAG("provider", schedule="@daily", start_date=datetime(2024, 1, 1)) as provider:
    query = PostgresOperator(task_id="query", sql="SELECT 1")

with DAG("templated", schedule="@daily", start_date=datetime(2024, 1, 1)) as templated:
    day = BashOperator(task_id="day", bash_command="report --day {{ ds }}")

with DAG("on_dataset", schedule=[Dataset("s3://x")], start_date=datetime(2024, 1, 1)) as on_dataset:
    use = BashOperator(task_id="use", bash_command="use")

with DAG("unnamed_schedule", start_date=datetime(2024, 1, 1)) as unnamed:
    some = BashOperator(task_id="some", bash_command="some")

with DAG("gap", schedule="30 2 * * *", start_date=pendulum.datetime(2024, 1, 1, tz="Europe/Berlin")) as gap:
    night = BashOperator(task_id="night", bash_command="night")


@dag(schedule="@daily", start_date=datetime(2024, 1, 1))
def taskflow():
    @task
    def extract():
        return 1

    @task
    def load(value):
        print(value)

    load(extract())


taskflow()
