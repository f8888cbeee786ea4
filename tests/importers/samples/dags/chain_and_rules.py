from datetime import datetime

from airflow import DAG
from airflow.models.baseoperator import chain
from airflow.operators.bash import BashOperator
from airflow.operators.dummy import DummyOperator
from airflow.utils.trigger_rule import TriggerRule

ARGS = {"retries": 1}

with DAG("chain_and_rules", schedule_interval="15 */4 * * *", start_date=datetime(2023, 5, 1), default_args=ARGS) as dag:
    begin = DummyOperator(task_id="begin")
    a1 = BashOperator(task_id="a1", bash_command="a1")
    a2 = BashOperator(task_id="a2", bash_command="a2")
    b1 = BashOperator(task_id="b1", bash_command="b1")
    b2 = BashOperator(task_id="b2", bash_command="b2")
    finish = DummyOperator(task_id="finish", trigger_rule=TriggerRule.NONE_FAILED)
    chain(begin, [a1, a2], [b1, b2], finish)
