from datetime import datetime, timedelta

from airflow import DAG
from airflow.operators.bash import BashOperator
from airflow.operators.empty import EmptyOperator

HOUR = 60 * 60

with DAG(
    dag_id="either_day",
    description="The first of the month and every Monday",
    schedule="0 5 1 * 1",
    start_date=datetime(2024, 1, 1),
    catchup=False,
    is_paused_upon_creation=True,
) as dag:
    gate = EmptyOperator(task_id="gate")
    parts = [gate]
    bill = BashOperator(task_id="bill", bash_command="bill", execution_timeout=timedelta(seconds=2 * HOUR))
    mail = BashOperator(task_id="mail", bash_command="mail-bills")
    mail << bill << gate
