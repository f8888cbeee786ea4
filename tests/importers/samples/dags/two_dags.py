from datetime import datetime

from airflow import DAG
from airflow.operators.bash import BashOperator

START = datetime(2024, 6, 1)

with DAG("daily_totals", schedule="@daily", start_date=START, catchup=True) as daily:
    one = BashOperator(task_id="totals", bash_command="totals --day")

with DAG("monthly_totals", schedule="@monthly", start_date=START, catchup=True) as monthly:
    first = BashOperator(task_id="totals", bash_command="totals --month")
    second = BashOperator(task_id="archive", bash_command="archive")
    second << first
