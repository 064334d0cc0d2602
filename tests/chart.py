"""Check the Helm chart: `python -m tests.chart HELM KUBERNETES_VALIDATE` lints it, renders the examples and compares
the resources with the schemas of the oldest and newest supported Kubernetes."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from tests.support.images_offer import wrong_use

ROOT = Path(__file__).parents[1]
CHART = ROOT / "deploy" / "helm" / "tailorbird"
EXAMPLES = ROOT / "deploy" / "helm" / "examples"
KUBERNETES = ("1.29.0", "1.37.0")
# Values that the chart must refuse, each with a part of the message.
REFUSED = {
    "topology.existingConfigMap=": "set topology.text",
    "dashboard.replica=3": "replica",
    "dashboard.behindProxy=false": "dashboard.tls",
    "dashboard.behindProxy=false,dashboard.tls=t": "dashboard.users",
    "api.replicas=2": "replicas",
    "api.behindProxy=false": "api.tls",
    "gateway.enabled=true": "gateway.identity",
    "joins[0].sparkArguments[0]=x,joins[0].table=t": "master",
    "metricsPort=80": "metricsPort",
}


def problems(helm: str, validate: str) -> list[str]:
    """Return what is wrong with the chart; empty if nothing is."""
    found = list[str]()
    with tempfile.TemporaryDirectory() as folder:
        for example in sorted(EXAMPLES.glob("*.yaml")):
            found += _failed([helm, "lint", "--strict", "--quiet", str(CHART), "--values", str(example)])
            command = [helm, "template", "t", str(CHART), "--values", str(example)]
            rendered = subprocess.run(command, capture_output=True, text=True, check=False)
            if rendered.returncode:
                found.append(f"{example.name}: {rendered.stderr}")
                continue
            found += [f"{example.name}: {one}" for one in open_pods(rendered.stdout)]
            if example.stem == "shop":
                found += differences_from_compose(rendered.stdout)
            file = Path(folder) / example.name
            file.write_text(rendered.stdout)
            for version in KUBERNETES:
                found += _failed([validate, "--strict", "--quiet", "--kubernetes-version", version, str(file)])
    for values, message in REFUSED.items():
        command = [helm, "template", "t", str(CHART), "--values", str(EXAMPLES / "shop.yaml"), "--set", values]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0 or message not in done.stderr:
            found.append(f"--set {values} must be refused because of {message}: {done.stderr}")
    return found


def open_pods(rendered: str) -> list[str]:
    """Return containers that lack one of the restrictions with which the images are tested, or that use an image in
    another way than its Dockerfile permits."""
    found = list[str]()
    for resource in filter(None, yaml.safe_load_all(rendered)):
        template = resource.get("spec", {}).get("template")
        if template is None:
            continue
        pod = template["spec"]
        name = f"{resource['kind']} {resource['metadata']['name']}"
        if (pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsNonRoot"]) != (10001, True):
            found.append(f"{name} does not run as the user of the images")
        for container in [*pod["containers"], *pod.get("initContainers", [])]:
            found += [f"{name}: {one}" for one in [*_open_container(container), *_wrong_use(pod, container)]]
    return found


def differences_from_compose(rendered: str) -> list[str]:
    """Return the processes that only one of the rendered chart and Docker Compose's profile `pipeline` runs, each with
    its image. Options of the dashboard and the API differ, since Compose serves them to this
    machine only."""
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"].values()
    compose = {_process(one["image"], one["command"]) for one in services if one.get("profiles") == ["pipeline"]}
    pods = [resource.get("spec", {}).get("template") for resource in filter(None, yaml.safe_load_all(rendered))]
    chart = {_process(one["image"], one["args"]) for pod in pods if pod for one in pod["spec"]["containers"]}
    return [f"only in one of Docker Compose and the chart: {one}" for one in sorted(chart ^ compose)]


def _process(image: str, arguments: list[str]) -> str:
    words = ["FILE" if word.startswith("/etc/tailorbird/") else word for word in arguments]
    words = words[:2] if words[0] in ("dashboard", "api") else words
    return f"{' '.join(words)} in {image.rpartition('/')[2].partition(':')[0]}"


def _wrong_use(pod: dict[str, Any], container: dict[str, Any]) -> list[str]:
    security = pod["securityContext"]
    return wrong_use(
        container["image"].rpartition("/")[2],
        container["args"],
        user=f"{security['runAsUser']}:{security['runAsGroup']}",
        mounted=[mount["mountPath"] for mount in container["volumeMounts"]],
        ports=[port["containerPort"] for port in container.get("ports", [])],
    )


def _open_container(container: dict[str, Any]) -> list[str]:
    security = container["securityContext"]
    wanted = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    found = [f"{key} is not {value}" for key, value in wanted.items() if security.get(key) != value]
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    return [*found, *(f"{path} is not writable" for path in ("/tmp", "/var/lib/tailorbird") if path not in mounted)]


def _failed(command: list[str]) -> list[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return [f"{' '.join(command[1:])}: {done.stdout}{done.stderr}"] if done.returncode else []


def main() -> int:
    """Print the problems; return 1 if there are any."""
    found = problems(*sys.argv[1:])
    print("\n".join(found) or "chart: examples rendered and compared with Kubernetes' schemas")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
