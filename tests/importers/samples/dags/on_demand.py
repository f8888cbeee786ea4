from datetime import datetime

from airflow import DAG
from airflow.operators.bash import BashOperator
from airflow.operators.python import PythonOperator

import tools.migrate as migrate

dag = DAG("on_demand_migration", schedule=None, start_date=datetime(2025, 1, 1))
check = BashOperator(task_id="check", bash_command="check-schema", dag=dag)
run = PythonOperator(task_id="run", python_callable=migrate.run, dag=dag)
run.set_upstream(check)
