from airflow.decorators import dag
from airflow.operators.bash import BashOperator
from pendulum import datetime


@dag(schedule="@hourly", start_date=datetime(2025, 1, 1), catchup=False)
def hourly_sync():
    pull = BashOperator(task_id="pull", bash_command="sync pull")
    push = BashOperator(task_id="push", bash_command="sync push")
    pull.set_downstream(push)


hourly_sync()
