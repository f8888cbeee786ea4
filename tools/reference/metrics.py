"""`docs/reference/metrics.md`: every metric that `/metrics` exports."""

from __future__ import annotations

from prometheus_client.metrics import MetricWrapperBase

from mainspring.telemetry import metrics
from tools.reference.markdown import code, sentence, table
from tools.reference.markdown import page as make_page


def page() -> str:
    found = sorted(
        (metric for metric in vars(metrics).values() if isinstance(metric, MetricWrapperBase)),
        key=lambda metric: metric._name,
    )
    return make_page(
        "Metrics",
        "Every server process serves Prometheus metrics at `/metrics`; the path needs a token with the scope `read`.",
        table(("Metric", "Type", "Labels", "Meaning"), [_row(metric) for metric in found]),
    )


def _row(metric: MetricWrapperBase) -> tuple[str, str, str, str]:
    name = metric._name + ("_total" if metric._type == "counter" else "")
    return code(name), str(metric._type), ", ".join(map(code, metric._labelnames)), sentence(metric._documentation)
