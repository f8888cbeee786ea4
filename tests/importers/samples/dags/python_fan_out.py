import pendulum
from airflow.models import DAG
from airflow.operators.empty import EmptyOperator
from airflow.operators.python import PythonOperator

from shop.reports import build_report, send_report


def cleanup():
    print("done")


dag = DAG(
    dag_id="python_fan_out",
    schedule="30 6 * * 1-5",
    start_date=pendulum.datetime(2024, 3, 1, tz="Europe/Berlin"),
    catchup=False,
    max_active_runs=1,
)

start = EmptyOperator(task_id="start", dag=dag)
eu = PythonOperator(task_id="report_eu", python_callable=build_report, op_kwargs={"region": "eu"}, dag=dag)
us = PythonOperator(task_id="report_us", python_callable=build_report, op_kwargs={"region": "us"}, dag=dag)
send = PythonOperator(task_id="send", python_callable=send_report, dag=dag)
end = PythonOperator(task_id="cleanup", python_callable=cleanup, trigger_rule="all_done", dag=dag)

start >> [eu, us] >> send
send >> end
