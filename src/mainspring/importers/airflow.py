"""Airflow DAG files: what the syntax tree shows of DAGs, operators and dependencies. Nothing is executed."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from mainspring.domain.job import Misfire, NoopTask, Task
from mainspring.domain.retry import RetryPolicy
from mainspring.domain.schedule.spec import ScheduleSpec
from mainspring.domain.task import PythonTask
from mainspring.domain.workflow.spec import STEP_NAME, Rule, Step, WorkflowSpec
from mainspring.importers.airflow_schedule import read_schedule
from mainspring.importers.build import check_workflow, metadata, shell_task
from mainspring.importers.dag_edges import read_edges
from mainspring.importers.names import Names
from mainspring.importers.plan import Entry, Plan, ReadOptions, SourceFile, Unsupported
from mainspring.importers.python_source import Call, Module, Unknown, name_of

MAX_STEPS = 2_000
_RULES: dict[str, Rule] = {
    "all_success": "all_succeeded",
    "all_done": "all_done",
    "one_success": "any_succeeded",
    "none_failed": "none_failed",
    "none_failed_min_one_success": "none_failed",
    "none_failed_or_skipped": "none_failed",
    "always": "always",
}
_BASH = ("BashOperator",)
_PYTHON = ("PythonOperator", "PythonVirtualenvOperator")
_EMPTY = ("EmptyOperator", "DummyOperator")
_RETRY_DELAY = timedelta(minutes=5)
_CARRIED = {
    "task_id", "bash_command", "env", "cwd", "python_callable", "op_kwargs", "op_args", "dag", "retries", "retry_delay",
    "retry_exponential_backoff", "max_retry_delay", "execution_timeout", "trigger_rule", "doc", "doc_md", "append_env",
    "owner", "provide_context", "start_date",
}  # fmt: skip
_DAG_CARRIED = {
    "dag_id", "schedule", "schedule_interval", "timetable", "start_date", "catchup", "default_args", "description",
    "max_active_runs", "tags", "doc_md", "is_paused_upon_creation", "dagrun_timeout", "end_date",
    "default_view", "orientation", "max_active_tasks", "concurrency",
}  # fmt: skip


@dataclass(slots=True)
class Operator:
    """One operator of a DAG: its call, and the task id."""

    task_id: str
    call: Call
    node: ast.Call


@dataclass(slots=True)
class Dag:
    """A DAG of a file, with what was found of it."""

    dag_id: str
    line: int
    settings: dict[str, Any]
    operators: dict[str, Operator] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    """Task ids by the variable that holds the operator."""
    edges: list[tuple[str, str]] = field(default_factory=list)
    problem: Unsupported | None = None


def read_airflow(files: list[SourceFile], options: ReadOptions) -> Plan:
    """Read DAG files into a plan: one workflow per DAG."""
    plan, names = Plan("airflow"), Names(options.prefix)
    for file in files:
        module = Module(file)
        reader = _Reader(module)
        reader.visit_body(module.tree.body, None, fixed=True)
        for dag in reader.dags:
            _read_dag(plan, names, module, dag, options)
    return plan


class _Reader:
    """Walks the statements of a file and collects DAGs, operators and dependencies."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self.dags: list[Dag] = []
        self._by_variable: dict[str, Dag] = {}
        self._owners: dict[str, Dag] = {}
        """DAGs by the variables of their operators."""
        self._task_functions = {
            node.name
            for node in module.nodes
            if isinstance(node, ast.FunctionDef)
            and any(_root(decorator) in ("task", "task_group") for decorator in node.decorator_list)
        }

    def visit_body(self, body: list[ast.stmt], dag: Dag | None, *, fixed: bool) -> None:
        """Read statements. `fixed`: they are executed exactly once."""
        for statement in body:
            self._visit(statement, dag, fixed=fixed)

    def _visit(self, node: ast.stmt, dag: Dag | None, *, fixed: bool) -> None:
        match node:
            case ast.With(items=items, body=body):
                inner = dag
                for item in items:
                    if (found := self._dag_call(item.context_expr)) is not None:
                        inner = found
                        if isinstance(item.optional_vars, ast.Name):
                            self._by_variable[item.optional_vars.id] = found
                    elif dag is not None and isinstance(item.context_expr, ast.Call):
                        name = name_of(item.context_expr.func) or "with"
                        self._refuse(dag, f"{name} groups tasks", "write the tasks without the group", node.lineno)
                self.visit_body(body, inner, fixed=fixed)
            case ast.FunctionDef(body=body, decorator_list=decorators):
                for decorator in decorators:
                    if name_of(decorator.func if isinstance(decorator, ast.Call) else decorator) == "dag":
                        inner = self._decorated(node, decorator)
                        self.visit_body(body, inner, fixed=fixed)
            case ast.Assign(targets=[ast.Name(id=variable)], value=value):
                self._assign(variable, value, dag, fixed=fixed)
            case ast.Expr(value=value):
                self._expression(value, dag, fixed=fixed)
            case ast.For(body=body) | ast.While(body=body):
                self.visit_body(body, dag, fixed=False)
            case ast.If(body=body, orelse=orelse):
                self.visit_body([*body, *orelse], dag, fixed=False)
            case ast.Try(body=body):
                self.visit_body(body, dag, fixed=fixed)

    def _dag_call(self, node: ast.AST) -> Dag | None:
        if not isinstance(node, ast.Call) or name_of(node.func) != "DAG":
            return None
        call = self._module.read(node)
        assert isinstance(call, Call)
        settings = dict(call.kwargs)
        dag_id = call.args[0] if call.args else settings.get("dag_id")
        return self._new(dag_id, node.lineno, settings)

    def _decorated(self, node: ast.FunctionDef, decorator: ast.expr) -> Dag:
        call = self._module.read(decorator) if isinstance(decorator, ast.Call) else None
        settings = dict(call.kwargs) if isinstance(call, Call) else {}
        given = call.args[0] if isinstance(call, Call) and call.args else settings.get("dag_id")
        return self._new(given or node.name, node.lineno, settings)

    def _new(self, dag_id: Any, line: int, settings: dict[str, Any]) -> Dag:
        dag = Dag(dag_id if isinstance(dag_id, str) else "dag", line, settings)
        if not isinstance(dag_id, str):
            dag.problem = Unsupported("the id of the DAG is computed by the program", "write it as a string", line)
        self.dags.append(dag)
        return dag

    def _assign(self, variable: str, value: ast.expr, dag: Dag | None, *, fixed: bool) -> None:
        if (found := self._dag_call(value)) is not None:
            self._by_variable[variable] = found
        elif (operator := self._operator(value, dag, fixed=fixed)) is not None:
            owner, task_id = operator
            owner.variables[variable] = task_id
            self._owners[variable] = owner
        elif isinstance(value, ast.BinOp | ast.ListComp):
            self._expression(value, dag, fixed=fixed)

    def _expression(self, value: ast.expr, dag: Dag | None, *, fixed: bool) -> None:
        if self._operator(value, dag, fixed=fixed) is not None:
            return
        owner = dag if dag is not None else self._owners.get(_first_name(value))
        if owner is None:
            return
        if isinstance(value, ast.ListComp):
            self._refuse(owner, "tasks are made in a loop", "write each task, or use a step with map", value.lineno)
        edges = read_edges(value, owner.variables)
        if edges and not fixed:
            self._refuse(owner, "dependencies are made in a loop", "write each of them", value.lineno)
        owner.edges += edges

    def _operator(self, node: ast.expr, dag: Dag | None, *, fixed: bool) -> tuple[Dag, str] | None:
        if not isinstance(node, ast.Call):
            return None
        name = name_of(node.func)
        is_operator = name.endswith(("Operator", "Sensor", "OperatorAsync"))
        is_expanded = name in ("expand", "partial", "override")
        if not is_operator:
            if dag is not None and (is_expanded or name in self._task_functions):
                message = f"{name}() is a TaskFlow task, whose results are arguments of others"
                self._refuse(dag, message, "write it as PythonOperator, or as a Mainspring workflow", node.lineno)
            return None
        call = self._module.read(node)
        assert isinstance(call, Call)
        given = next((keyword.value for keyword in node.keywords if keyword.arg == "dag"), None)
        owner = self._by_variable.get(given.id) if isinstance(given, ast.Name) else dag
        if owner is None:
            return None
        if not fixed:
            self._refuse(owner, "tasks are made in a loop or a condition", "write each task", node.lineno)
        task_id = call.kwargs.get("task_id")
        if not isinstance(task_id, str):
            self._refuse(owner, "the id of a task is computed by the program", "write it as a string", node.lineno)
            return owner, ""
        if task_id in owner.operators:
            self._refuse(owner, f"two tasks have the id {task_id[:60]!r}", "rename one of them", node.lineno)
        owner.operators[task_id] = Operator(task_id, call, node)
        return owner, task_id

    @staticmethod
    def _refuse(dag: Dag, message: str, hint: str, line: int) -> None:
        dag.problem = dag.problem or Unsupported(message, hint, line)


def _first_name(node: ast.expr) -> str:
    """The leftmost variable of a chain of dependencies, or of a call."""
    while True:
        match node:
            case ast.BinOp(left=left):
                node = left
            case ast.List(elts=[first, *_]) | ast.Tuple(elts=[first, *_]):
                node = first
            case ast.Call(func=ast.Attribute(value=value)):
                node = value
            case ast.Call(args=[first, *_]):
                node = first
            case ast.Name(id=name):
                return name
            case _:
                return ""


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Call | ast.Attribute):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _read_dag(plan: Plan, names: Names, module: Module, dag: Dag, options: ReadOptions) -> None:
    file = module.file.name
    try:
        if dag.problem is not None:
            raise dag.problem
        schedule, rule, text = read_schedule(plan, file, dag.dag_id, dag.line, dag.settings, options)
        name = names.take(dag.dag_id)
        spec = _workflow(plan, module, dag, name, schedule, options)
        _report_dropped(plan, file, dag, name)
        plan.add(Entry(file, dag.line, check_workflow(spec), rule, text))
    except Unsupported as error:
        plan.find("unsupported", file, error.line or dag.line, dag.dag_id, error.message, error.hint)


def _workflow(
    plan: Plan, module: Module, dag: Dag, name: str, schedule: ScheduleSpec | None, options: ReadOptions
) -> WorkflowSpec:
    if not dag.operators:
        raise Unsupported("no task of the DAG can be read", "write its tasks as operators", dag.line)
    if len(dag.operators) > MAX_STEPS:
        raise Unsupported(f"the DAG has more than {MAX_STEPS:,} tasks", "split it", dag.line)
    ids = {task_id: _step_name(task_id, operator.call.line) for task_id, operator in dag.operators.items()}
    if len(set(ids.values())) != len(ids):
        raise Unsupported("two task ids become the same step name", "rename one of them", dag.line)
    needs: dict[str, dict[str, None]] = {task_id: {} for task_id in ids}
    for before, after in dag.edges:
        if before in ids and after in needs:
            needs[after][ids[before]] = None
    defaults = dag.settings.get("default_args")
    defaults = defaults if isinstance(defaults, dict) else {}
    steps = {
        ids[task_id]: _step(plan, module, name, operator, defaults, tuple(needs[task_id]), options)
        for task_id, operator in dag.operators.items()
    }
    catchup, active = dag.settings.get("catchup", False), dag.settings.get("max_active_runs")
    timeout = dag.settings.get("dagrun_timeout")
    description = dag.settings.get("description")
    return WorkflowSpec(
        name=name,
        steps=steps,
        schedule=schedule,
        description=description if isinstance(description, str) else "",
        metadata=metadata(plan, options),
        overlap="queue_all" if active == 1 else "allow",
        misfire=Misfire(policy="all" if catchup is True else "latest"),
        timeout=_seconds(timeout),
        paused=dag.settings.get("is_paused_upon_creation") is True,
    )


def _step(
    plan: Plan, module: Module, name: str, operator: Operator, defaults: dict[str, Any], needs: tuple[str, ...],
    options: ReadOptions,
) -> Step:  # fmt: skip
    call, line, file = operator.call, operator.call.line, module.file.name
    given = {**{key: value for key, value in defaults.items() if key in _CARRIED}, **call.kwargs}
    for key, value in call.kwargs.items():
        if key not in _CARRIED and not (key == "depends_on_past" and value is False):
            message = f"{key} of {operator.task_id} is not carried over"
            plan.find("dropped", file, line, name, message, "check whether the step needs it")
    rule = given.get("trigger_rule", "all_success")
    rule = rule.text.lower().removeprefix("….") if isinstance(rule, Unknown) else rule
    if not isinstance(rule, str) or rule not in _RULES:
        raise Unsupported(f"trigger_rule {rule!r} cannot be expressed", f"one of {', '.join(_RULES)}", line)
    try:
        task = _task(plan, module, name, operator, given)
    except Unsupported as error:
        raise Unsupported(f"{operator.task_id}: {error.message}", error.hint, error.line or line) from None
    return Step(
        task=task,
        needs=needs,
        rule=_RULES[rule],
        retries=_retries(given),
        timeout=_seconds(given.get("execution_timeout")) or options.timeout,
        labels=dict(options.labels),
    )


def _task(plan: Plan, module: Module, name: str, operator: Operator, given: dict[str, Any]) -> Task:
    call = operator.call
    if call.name in _EMPTY:
        return NoopTask()
    if call.name in _BASH:
        command, env, cwd = given.get("bash_command"), given.get("env") or {}, given.get("cwd")
        if not isinstance(command, str):
            raise Unsupported("the command is computed by the program", "write it as a string", call.line)
        if not isinstance(env, dict) or not all(isinstance(value, str) for value in env.values()):
            raise Unsupported("the environment is computed by the program", "write it as strings", call.line)
        return shell_task(command.strip(), shell="/bin/bash", env=env, cwd=cwd if isinstance(cwd, str) else None)
    if call.name in _PYTHON:
        return _python_task(plan, module, name, operator, given)
    hint = "replace it by a command or a function, or write the step by hand"
    raise Unsupported(f"{call.name} has no counterpart", hint, call.line)


def _python_task(plan: Plan, module: Module, name: str, operator: Operator, given: dict[str, Any]) -> PythonTask:
    line = operator.call.line
    node = next((k.value for k in operator.node.keywords if k.arg == "python_callable"), None)
    if not isinstance(node, ast.Name | ast.Attribute) or not name_of(node):
        raise Unsupported("python_callable is not the name of a function", "write the name of a function", line)
    if given.get("op_args"):
        raise Unsupported("positional arguments (op_args) cannot be carried over", "use op_kwargs", line)
    args = given.get("op_kwargs") or {}
    if not isinstance(args, dict) or any(isinstance(value, Unknown | Call | timedelta) for value in args.values()):
        raise Unsupported("op_kwargs are computed by the program", "write them as literals", line)
    function = module.function_of(node)
    message = f"calls the function {function}: a worker must load it"
    plan.find("note", module.file.name, line, name, message, "start a worker with the module: mainspring worker --help")
    return PythonTask(function=function, args=args)


def _retries(given: dict[str, Any]) -> RetryPolicy:
    count = given.get("retries", 0)
    if not isinstance(count, int) or not 0 <= count <= 1000:
        count = 0
    delay = given.get("retry_delay", _RETRY_DELAY)
    delay = timedelta(seconds=delay) if isinstance(delay, int | float) and 0 <= delay < 10**8 else delay
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else _RETRY_DELAY.total_seconds()
    longest = given.get("max_retry_delay")
    cap = longest.total_seconds() if isinstance(longest, timedelta) else max(seconds, 86_400.0)
    factor = 2.0 if given.get("retry_exponential_backoff") is True else 1.0
    return RetryPolicy(max=count, base=f"{seconds:g}s", cap=f"{cap:g}s", factor=factor, jitter="none")


def _report_dropped(plan: Plan, file: str, dag: Dag, name: str) -> None:
    for key in sorted(dag.settings.keys() - _DAG_CARRIED):
        hint = "use a notification channel" if "callback" in key else "check whether the workflow needs it"
        plan.find("dropped", file, dag.line, name, f"{key} of the DAG is not carried over", hint)
    defaults = dag.settings.get("default_args")
    for key, value in defaults.items() if isinstance(defaults, dict) else ():
        if key not in _CARRIED and value not in (False, None):
            hint = "use a notification channel: see the how-to page on notifications" if key.startswith("email") else ""
            plan.find("dropped", file, dag.line, name, f"{key} of default_args is not carried over", hint)
    if dag.settings.get("catchup", True) is True and dag.settings.get("start_date") is not None:
        hint = "execute past fires with: mainspring backfill, once the workflow exists"
        plan.find("note", file, dag.line, name, "catchup: runs before the import are not created", hint)


def _step_name(task_id: str, line: int) -> str:
    name = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in task_id)[:63]
    name = f"_{name}"[:63] if name[:1].isdigit() else name
    if not STEP_NAME.match(name):
        raise Unsupported(f"{task_id[:60]!r} cannot be the name of a step", "use letters, digits and _", line)
    return name


def _seconds(value: Any) -> str | None:
    return f"{value.total_seconds():g}s" if isinstance(value, timedelta) and value.total_seconds() > 0 else None
