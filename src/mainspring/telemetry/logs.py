"""Logging to stderr: readable lines on a terminal, JSON otherwise."""

from __future__ import annotations

import logging
import sys

import structlog

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def _escaped(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Quote values that would control the terminal, such as errors of jobs."""
    return {name: repr(v) if isinstance(v, str) and not v.isprintable() else v for name, v in event.items()}


def _traced(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Add the trace of an execution, whose id is the one of the execution."""
    if (execution := event.get("execution")) is not None:
        event["trace_id"] = str(execution).replace("-", "")
    return event


def configure(level: str) -> None:
    terminal = sys.stderr.isatty()
    render: structlog.typing.Processor = structlog.processors.JSONRenderer()
    if terminal:
        # The other formatters print local variables, which may contain tokens and job parameters.
        render = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            _traced,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            *([_escaped] if terminal else [structlog.processors.format_exc_info]),
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS.get(level, logging.INFO)),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
