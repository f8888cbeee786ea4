from datetime import datetime, timedelta

from airflow import DAG
from airflow.operators.bash import BashOperator

with DAG(
    dag_id="interval_delta",
    schedule_interval=timedelta(hours=6),
    start_date=datetime(2025, 1, 1, 3),
    catchup=False,
) as dag:
    BashOperator(task_id="poll", bash_command="poll-feed --since last")
