import pendulum
from airflow import DAG
from airflow.operators.bash import BashOperator
from airflow.timetables.trigger import CronTriggerTimetable

with DAG(
    dag_id="new_york_close",
    timetable=CronTriggerTimetable("0 17 * * 1-5", timezone="America/New_York"),
    start_date=pendulum.datetime(2024, 1, 1, tz="America/New_York"),
    catchup=False,
) as dag:
    close = BashOperator(task_id="close", bash_command="close-books", env={"DESK": "equities"}, cwd="/srv/desk")
