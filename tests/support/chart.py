"""Renders the Helm chart without Helm: plain values, and conditions on one value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from tools.tree import ROOT

CHART = ROOT / "deploy" / "helm" / "mainspring"
EVERYTHING = ("podWorker.enabled=true", "autoscaling.enabled=true")
"""Every optional part, as Helm takes it with `--set`."""
_VALUE = re.compile(r"\{\{ \.(Values(?:\.\w+)+|Release\.Name|Release\.Namespace) \}\}")
_CONDITION = re.compile(r"^\{\{- if (not )?\.(Values(?:\.\w+)+) \}\}\n(.*?)^\{\{- end \}\}\n", re.MULTILINE | re.DOTALL)


def objects(values: Sequence[str] = ()) -> list[Any]:
    """Return every object of the chart with these values."""
    return [found for path in sorted(CHART.glob("templates/*.yaml")) for found in rendered(path, values)]


def rendered(path: Path, values: Sequence[str] = ()) -> Iterator[Any]:
    known = {"Values": yaml.safe_load((CHART / "values.yaml").read_text())}
    known["Release"] = {"Name": "prod", "Namespace": "mainspring"}
    for value in values:
        key, _, text = value.partition("=")
        *above, name = key.split(".")
        _at(known, ["Values", *above])[name] = yaml.safe_load(text)

    def choose(match: re.Match[str]) -> str:
        return match[3] if bool(_at(known, match[2].split("."))) is not bool(match[1]) else ""

    text = path.read_text()
    while (chosen := _CONDITION.sub(choose, text)) != text:
        text = chosen
    text = _VALUE.sub(lambda match: str(_at(known, match[1].split("."))), text)
    assert "{{" not in text, "a template uses more than values and conditions"
    yield from (found for found in yaml.safe_load_all(text) if found)


def _at(known: Any, names: Sequence[str]) -> Any:
    for name in names:
        known = known[name]
    return known
