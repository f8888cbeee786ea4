"""Image, compose file, chart and units: parsed, and their commands checked against the program's own options.

The chart uses plain values only, which this test fills in; Helm itself is not run. The image is not built here.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from mainspring.cli.config_file import load_command
from mainspring.config import ENVIRONMENT
from tools.tree import ROOT

DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "mainspring"
VALUE = re.compile(r"\{\{ \.(Values(?:\.\w+)+|Release\.Name) \}\}")


def rendered(path: Path) -> Iterator[Any]:
    values = {"Values": yaml.safe_load((CHART / "values.yaml").read_text()), "Release": {"Name": "prod"}}

    def fill(match: re.Match[str]) -> str:
        found: Any = values
        for name in match[1].split("."):
            found = found[name]
        return str(found)

    text = VALUE.sub(fill, path.read_text())
    assert "{{" not in text, "a template uses more than values"
    yield from yaml.safe_load_all(text)


def demand_valid(words: list[str]) -> None:
    """Parse a command line with the program's own parser, without running it."""
    command = load_command(words[0])
    context = click.Context(command, info_name=words[0])
    command.make_parser(context).parse_args(args=words[1:])


def objects() -> list[Any]:
    return [found for path in sorted(CHART.glob("templates/*.yaml")) for found in rendered(path)]


def test_every_deployment_of_the_chart_is_confined_and_probed() -> None:
    deployments = [found for found in objects() if found["kind"] == "Deployment"]
    assert [d["metadata"]["name"] for d in deployments] == ["prod-api", "prod-scheduler", "prod-worker"]
    for deployment in deployments:
        pod = deployment["spec"]["template"]["spec"]
        assert deployment["spec"]["selector"]["matchLabels"] == deployment["spec"]["template"]["metadata"]["labels"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        (container,) = pod["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["resources"]["limits"]["memory"]
        assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
        assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "health"}
        assert {mount["name"] for mount in container["volumeMounts"]} == {v["name"] for v in pod["volumes"]}
        assert pod["volumes"][0]["secret"]["defaultMode"] & 0o007 == 0, "the program refuses secrets others can read"
        assert {variable["name"] for variable in container["env"]} <= set(ENVIRONMENT)
        demand_valid(container["args"])


def test_the_service_selects_the_api_and_the_ingress_has_tls() -> None:
    found = {(each["kind"], each["metadata"]["name"]): each for each in objects()}
    labels = found["Deployment", "prod-api"]["spec"]["template"]["metadata"]["labels"]
    assert found["Service", "prod-api"]["spec"]["selector"].items() <= labels.items()
    assert found["Ingress", "prod"]["spec"]["tls"][0]["hosts"] == ["mainspring.example.com"]


def test_the_compose_file_limits_resources_and_keeps_secrets_in_files() -> None:
    content = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    for name, service in content["services"].items():
        assert service["deploy"]["resources"]["limits"].keys() == {"cpus", "memory"}, name
        assert set(service.get("secrets", ())) <= content["secrets"].keys()
        if service["image"] == "mainspring":
            demand_valid(service["command"])
            assert service["environment"].keys() <= set(ENVIRONMENT)
            assert service["read_only"] is True


def test_the_image_is_non_root_and_its_files_exist() -> None:
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    steps = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    last = [step for step in steps if step[0] in ("USER", "HEALTHCHECK", "ENTRYPOINT")]
    assert [name for name, _ in last] == ["USER", "HEALTHCHECK", "ENTRYPOINT"]
    assert last[0][1] == "10001:10001"
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for name, words in steps:
        if name == "COPY" and not words.startswith("--from"):
            sources = {source.removeprefix("./") for source in words.split()[:-1]}
            assert sources <= allowed, "the build context does not have it"
            assert all((ROOT / source).exists() for source in sources)
        if name == "ENV":
            variables = set(re.findall(r"(MAINSPRING_\w+)=", words))
            assert variables <= set(ENVIRONMENT)


@pytest.mark.parametrize("unit", sorted((DEPLOY / "systemd").glob("*.service")), ids=lambda unit: unit.name)
def test_units_are_valid(unit: Path, tmp_path: Path) -> None:
    command = next(line for line in unit.read_text().splitlines() if line.startswith("ExecStart="))
    demand_valid(shlex.split(command.partition("=")[2])[1:])
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace("/opt/mainspring/bin/mainspring", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False)
    complaints = [line for line in done.stderr.splitlines() if unit.stem in line and "OpenFile" not in line]
    assert complaints == []  # OpenFile= needs systemd 253; older ones ignore it
