"""Image, compose file, chart and units: parsed, and their commands checked against the program's own options.

The chart uses plain values and conditions, which `tests/support/chart.py` fills in. `make helm` builds Helm, whose
rendering must be the same. Objects are checked against the published schemas of the oldest and newest Kubernetes that
the chart supports, and those of KEDA against its own. `test_cluster.py` applies them to an API server.
"""

from __future__ import annotations

import copy
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import jsonschema_rs
import pytest
import yaml

from mainspring.cli.config_file import load_command
from mainspring.cli.main import main
from mainspring.config import ENVIRONMENT
from tests.support.chart import CHART, EVERYTHING, objects
from tools.tree import ROOT

DEPLOY = ROOT / "deploy"


def demand_valid(words: list[str]) -> None:
    """Parse a command line with the program's own parser, without running it."""
    command = load_command(words[0])
    context = click.Context(command, info_name=words[0])
    command.make_parser(context).parse_args(args=words[1:])


def test_every_deployment_of_the_chart_is_confined_and_probed() -> None:
    deployments = [found for found in objects() if found["kind"] == "Deployment"]
    assert [d["metadata"]["name"] for d in deployments] == ["prod-api", "prod-scheduler", "prod-worker"]
    deployments = [found for found in objects(EVERYTHING) if found["kind"] == "Deployment"]
    assert [d["metadata"]["name"] for d in deployments][1] == "prod-pod-worker"
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
        mounted = [volume["secret"] for volume in pod["volumes"] if "secret" in volume]
        assert mounted
        assert all(v["defaultMode"] & 0o007 == 0 for v in mounted), "the program refuses secrets others can read"
        assert {variable["name"] for variable in container["env"]} <= set(ENVIRONMENT)
        demand_valid(container["args"])


KUBERNETES = ROOT / ".cache" / "kubernetes"


def faults(version: str, found: Any) -> list[str]:
    """What the schemas of this version of Kubernetes find wrong with an object."""
    path = KUBERNETES / f"{version}.json"
    if not path.exists():
        pytest.skip("the schemas of Kubernetes are missing: run make install-system")
    definitions = json.loads(path.read_text())["$defs"]
    group, _, number = found["apiVersion"].rpartition("/")
    wanted = {"group": group, "version": number, "kind": found["kind"]}
    key = "x-kubernetes-group-version-kind"
    (name,) = [name for name, schema in definitions.items() if wanted in schema.get(key, ())]
    schema = {"$id": "http://kubernetes/api/_definitions.json", "$defs": definitions, "$ref": f"#/$defs/{name}"}
    errors = jsonschema_rs.Draft202012Validator(schema).iter_errors(found)
    return [f"{name} {error.instance_path}: {error.message[:300]}" for error in errors]


@pytest.mark.parametrize("version", ["1.30.0", "1.37.0"])
def test_the_chart_conforms_to_the_schemas_of_kubernetes(version: str) -> None:
    builtin = [found for found in objects(EVERYTHING) if not found["apiVersion"].startswith("keda.sh/")]
    assert [fault for found in builtin for fault in faults(version, found)] == []
    broken = copy.deepcopy(next(found for found in objects() if found["kind"] == "Deployment"))
    (container,) = broken["spec"]["template"]["spec"]["containers"]
    container["readinesProbe"] = container.pop("readinessProbe")
    assert faults(version, broken), "the schemas know every field"


@pytest.mark.parametrize("values", [(), EVERYTHING], ids=["default", "everything"])
def test_helm_renders_the_same_objects(values: tuple[str, ...]) -> None:
    helm = shutil.which("helm") or shutil.which("helm", path=ROOT / ".cache" / "helm")
    if helm is None:
        pytest.skip("Helm is missing: make helm builds it, which takes minutes")
    subprocess.run([helm, "lint", "--strict", CHART], check=True, capture_output=True)
    options = [word for value in values for word in ("--set", value)]
    command = [helm, "template", "prod", str(CHART), "--namespace", "mainspring", *options]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    listed = {(found["kind"], found["metadata"]["name"]): found for found in yaml.safe_load_all(text) if found}
    assert listed == {(found["kind"], found["metadata"]["name"]): found for found in objects(values)}


def test_pods_and_autoscaling_are_off_by_default() -> None:
    assert {found["kind"] for found in objects()} == {"Deployment", "Service", "Ingress", "PodDisruptionBudget"}
    assert len(objects(EVERYTHING)) == len(objects()) + 6


def test_a_worker_of_pods_runs_no_code_of_jobs_beside_its_cluster_token() -> None:
    """Programs of the worker's user could read the token, and with it every Secret of the namespace."""
    for deployment in (found for found in objects(EVERYTHING) if found["kind"] == "Deployment"):
        pod = deployment["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        words = " ".join(container["args"])
        assert pod["automountServiceAccountToken"] is ("--min-isolation container" in words)


def test_keda_scales_the_workers_by_their_queues() -> None:
    (scaled,) = [found for found in objects(EVERYTHING) if found["kind"] == "ScaledObject"]
    (access,) = [found for found in objects(EVERYTHING) if found["kind"] == "TriggerAuthentication"]
    by_name = {found["metadata"]["name"]: found for found in objects(EVERYTHING) if found["kind"] == "Deployment"}
    target = by_name[scaled["spec"]["scaleTargetRef"]["name"]]
    assert "replicas" not in target["spec"], "an upgrade of the chart would undo what KEDA has decided"
    triggers = scaled["spec"]["triggers"]
    assert scaled["spec"]["advanced"]["scalingModifiers"]["formula"].split(" + ") == [t["name"] for t in triggers]
    for trigger in triggers:
        assert trigger["metadata"]["valueLocation"] == f"queues.{trigger['name']}.wanted_slots"
        assert trigger["authenticationRef"]["name"] == access["metadata"]["name"]
    (slots,) = [word for word in target["spec"]["template"]["spec"]["containers"][0]["args"] if word.isdigit()]
    assert {trigger["metadata"]["targetValue"] for trigger in triggers} == {slots}


KEDA = ROOT / ".cache" / "kubernetes-servers" / "keda"


def test_the_objects_of_keda_conform_to_its_schemas() -> None:
    if not KEDA.exists():
        pytest.skip("the definitions of KEDA are missing: make kubernetes fetches them")
    schemas = {}
    for path in KEDA.glob("*.yaml"):
        definition = yaml.safe_load(path.read_text())["spec"]
        schemas[definition["names"]["kind"]] = definition["versions"][0]["schema"]["openAPIV3Schema"]
    keda = [found for found in objects(EVERYTHING) if found["apiVersion"] == "keda.sh/v1alpha1"]
    assert len(keda) == 2
    for found in keda:
        schema = closed(schemas[found["kind"]])
        assert [e.message for e in jsonschema_rs.Draft202012Validator(schema).iter_errors(found)] == []
    broken = copy.deepcopy(next(found for found in keda if found["kind"] == "ScaledObject"))
    broken["spec"]["maxReplicas"] = broken["spec"].pop("maxReplicaCount")
    assert not jsonschema_rs.Draft202012Validator(closed(schemas["ScaledObject"])).is_valid(broken)


def closed(schema: Any) -> Any:
    """Refuse fields that a schema of Kubernetes does not name: the API server would drop them."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: closed(each) for name, each in schema.items()}
    if isinstance(schema.get("properties"), dict):
        found["additionalProperties"] = False
    return found


def test_every_server_has_the_master_keys_and_no_worker_has_them() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for deployment in (found for found in objects() if found["kind"] == "Deployment"):
        pod = deployment["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        files = {v["name"]: v["value"] for v in container["env"]}
        secrets = {v["name"]: v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v}
        if container["args"][0] == "worker":
            assert "MAINSPRING_SECRET_KEY_FILE" not in files
            assert values["masterKeySecret"] not in secrets.values()
            continue
        mounts = {Path(mount["mountPath"]): secrets.get(mount["name"]) for mount in container["volumeMounts"]}
        file = Path(files["MAINSPRING_SECRET_KEY_FILE"])
        assert mounts[file.parent] == values["masterKeySecret"]
        assert f"# key: {file.name}\n" in (CHART / "values.yaml").read_text().split("masterKeySecret:")[1]


def test_the_unit_of_the_server_reads_its_secrets_from_credentials() -> None:
    lines = (DEPLOY / "systemd/mainspring.service").read_text().splitlines()
    command = next(line for line in lines if line.startswith("ExecStart="))
    loaded = {line.partition("=")[2].partition(":")[0] for line in lines if line.startswith("LoadCredential=")}
    assert loaded == set(re.findall(r"\$\{CREDENTIALS_DIRECTORY\}/(\S+)", command)) == {"database-url", "secret-keys"}
    assert "--secret-key-file ${CREDENTIALS_DIRECTORY}/secret-keys" in command


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


def test_the_compose_file_conforms_to_the_compose_specification() -> None:
    path = ROOT / ".cache" / "compose" / "compose-spec.json"
    if not path.exists():
        pytest.skip("the schema of the compose specification is missing: run make install-system")
    schema = jsonschema_rs.validator_for(json.loads(path.read_text()))
    content = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    assert [f"{error.instance_path}: {error.message[:200]}" for error in schema.iter_errors(content)] == []
    content["services"]["server"]["read_onyl"] = True
    assert not schema.is_valid(content), "the schema knows every field"


def test_the_commands_of_the_compose_file_exist() -> None:
    """Those in its comment, with which an operator begins."""
    comment = (DEPLOY / "compose.yaml").read_text().partition("\nname:")[0].replace(" \\\n#", "")
    commands = re.findall(r"(?<=mainspring )((?:secrets|workers) [^>#\n]+)", comment)
    assert len(commands) == 2
    for words in map(shlex.split, commands):
        command = main.get_command(click.Context(main), words[0])
        assert isinstance(command, click.Group)
        name, rest = words[1], words[2:]
        verb = command.commands[name]
        verb.make_parser(click.Context(verb, info_name=name)).parse_args(args=rest)
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert set(re.findall(r"compose\.yaml (?:up -d|logs) ([a-z ]+)", comment)[0].split()) <= services.keys()


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
