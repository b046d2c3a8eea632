"""packaging/kubernetes: every field is known to Kubernetes, and the manifests agree with each other and with the server.

The shapes below follow the resources' published schemas (Deployment, Service and HorizontalPodAutoscaler of Kubernetes 1.30 and
later, PodMonitor v1, InferencePool v1), written out for the fields that the manifests use. A field that is not here fails the test:
look it up in the schema, then add it.
"""
import json
import re
import subprocess

import pytest
import yaml
from conftest import GOLDENS, ROOT

FOLDER = ROOT / "packaging" / "kubernetes"
QUANTITY = re.compile(r"\d+(\.\d+)?(m|[KMGT]i?)?")
NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


def either(*values):
    return lambda value: value in values


def count(low, high=10**6):
    return lambda value: type(value) is int and low <= value <= high


def text(value):
    return type(value) is str and value != ""


def flag(value):
    return type(value) is bool


def quantity(value):
    return type(value) is str and QUANTITY.fullmatch(value) is not None


def name(value):
    return type(value) is str and NAME.fullmatch(value) is not None


def path(value):
    return text(value) and value.startswith("/")


def port(value):
    return name(value) or count(1, 65535)(value)


class Need:
    """A field that must be there."""

    def __init__(self, shape):
        self.shape = shape


LABELS = {"app": Need(name)}
METADATA = Need({"name": Need(name), "labels": LABELS})
SELECTOR = Need({"matchLabels": Need(LABELS)})
PROBE = {"httpGet": Need({"path": Need(path), "port": Need(port)}), "periodSeconds": count(1), "timeoutSeconds": count(1), "failureThreshold": count(1)}
RESOURCES = {"cpu": Need(quantity), "memory": Need(quantity)}
CONTAINER = {
    "name": Need(name), "image": Need(text), "args": [text],
    "ports": [{"name": name, "containerPort": Need(count(1, 65535))}],
    "resources": {"requests": RESOURCES, "limits": RESOURCES},
    "startupProbe": PROBE, "livenessProbe": PROBE, "readinessProbe": PROBE,
    "lifecycle": {"preStop": {"sleep": {"seconds": Need(count(1, 600))}}},
    "securityContext": {"allowPrivilegeEscalation": flag, "readOnlyRootFilesystem": flag, "capabilities": {"drop": [text]}},
    "volumeMounts": [{"name": Need(name), "mountPath": Need(path), "readOnly": flag}],
}
POD = {
    "enableServiceLinks": flag, "automountServiceAccountToken": flag, "terminationGracePeriodSeconds": count(0),
    "securityContext": {"runAsNonRoot": flag, "runAsUser": count(1), "runAsGroup": count(1), "fsGroup": count(1),
                        "seccompProfile": {"type": Need(either("RuntimeDefault", "Localhost", "Unconfined"))}},
    "containers": Need([CONTAINER]),
    "volumes": [{"name": Need(name), "persistentVolumeClaim": {"claimName": Need(name), "readOnly": flag},
                 "secret": {"secretName": Need(name), "defaultMode": count(0, 0o777)}, "emptyDir": {}}],
}
POLICY = {"type": Need(either("Pods", "Percent")), "value": Need(count(1)), "periodSeconds": Need(count(1, 1800))}
SCALING = {"stabilizationWindowSeconds": count(0, 3600), "policies": [POLICY]}
SHAPES = {
    ("apps/v1", "Deployment"): {
        "metadata": METADATA,
        "spec": Need({"replicas": count(0), "selector": SELECTOR,
                      "strategy": {"type": either("RollingUpdate", "Recreate"), "rollingUpdate": {"maxSurge": count(0), "maxUnavailable": count(0)}},
                      "template": Need({"metadata": Need({"labels": Need(LABELS)}), "spec": Need(POD)})})},
    ("v1", "Service"): {
        "metadata": METADATA, "spec": Need({"selector": LABELS, "ports": Need([{"name": name, "port": Need(count(1, 65535)), "targetPort": port}])})},
    ("autoscaling/v2", "HorizontalPodAutoscaler"): {
        "metadata": METADATA,
        "spec": Need({"scaleTargetRef": Need({"apiVersion": text, "kind": Need(text), "name": Need(name)}),
                      "minReplicas": count(1), "maxReplicas": Need(count(1)), "behavior": {"scaleUp": SCALING, "scaleDown": SCALING},
                      "metrics": [{"type": Need(either("Pods")),
                                   "pods": Need({"metric": Need({"name": Need(text)}),
                                                 "target": Need({"type": Need(either("AverageValue")), "averageValue": Need(quantity)})})}]})},
    ("monitoring.coreos.com/v1", "PodMonitor"): {
        "metadata": METADATA,
        "spec": Need({"selector": SELECTOR, "podMetricsEndpoints": Need([{"port": Need(name), "path": path, "interval": text}])})},
    ("inference.networking.k8s.io/v1", "InferencePool"): {
        "metadata": METADATA,
        "spec": Need({"selector": SELECTOR, "targetPorts": Need([{"number": Need(count(1, 65535))}]),
                      "endpointPickerRef": Need({"group": either(""), "kind": either("Service"), "name": Need(name), "port": {"number": Need(count(1, 65535))},
                                                 "failureMode": either("FailOpen", "FailClose")})})},
}


def faults(value, shape, where):
    """What in `value` its shape does not allow, with the place of each."""
    shape = shape.shape if isinstance(shape, Need) else shape
    if isinstance(shape, list):
        if not isinstance(value, list) or not value:
            return [f"{where}: not a list, or an empty one"]
        return [fault for i, item in enumerate(value) for fault in faults(item, shape[0], f"{where}[{i}]")]
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return [f"{where}: not an object"]
        found = [f"{where}.{key}: no such field" for key in value.keys() - shape.keys()]
        found += [f"{where}.{key}: missing" for key, inner in shape.items() if isinstance(inner, Need) and key not in value]
        return found + [fault for key in value.keys() & shape.keys() for fault in faults(value[key], shape[key], f"{where}.{key}")]
    return [] if shape(value) else [f"{where}: {value!r} is not allowed"]


def resource_faults(resource):
    kind = (resource.get("apiVersion"), resource.get("kind"))
    if kind not in SHAPES:
        return [f"no such resource: {kind}"]
    return faults({key: value for key, value in resource.items() if key not in ("apiVersion", "kind")}, SHAPES[kind], kind[1])


@pytest.fixture(scope="module")
def resources():
    """Every resource by its kind."""
    found = {}
    for file in sorted(FOLDER.glob("*.yaml")):
        if file.name != "prometheus-adapter.yaml":
            for resource in yaml.safe_load_all(file.read_text()):
                assert resource["kind"] not in found
                found[resource["kind"]] = resource
    return found


@pytest.fixture(scope="module")
def container(resources):
    (only,) = resources["Deployment"]["spec"]["template"]["spec"]["containers"]
    return only


def test_every_field_is_one_that_kubernetes_knows(resources):
    assert sorted(resources) == sorted(kind for _, kind in SHAPES)
    for resource in resources.values():
        assert resource_faults(resource) == []


@pytest.mark.parametrize("break_it, fault", [
    (lambda deployment: deployment["spec"]["template"]["spec"].update(terminationGracePeriod=90), "terminationGracePeriod: no such field"),
    (lambda deployment: deployment["spec"]["template"]["spec"]["containers"][0]["startupProbe"].update(periodSeconds="5"), "'5' is not allowed"),
    (lambda deployment: deployment["spec"].pop("selector"), "selector: missing"),
    (lambda deployment: deployment.update(apiVersion="v1"), "no such resource"),
], ids=["unknown field", "text for a number", "missing field", "wrong version"])
def test_a_broken_manifest_is_found(resources, break_it, fault):
    broken = json.loads(json.dumps(resources["Deployment"]))
    break_it(broken)
    assert any(fault in message for message in resource_faults(broken))


def test_the_manifests_agree_with_each_other(resources, container):
    deployment = resources["Deployment"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels == resources["Service"]["spec"]["selector"]
    assert resources["PodMonitor"]["spec"]["selector"]["matchLabels"] == labels == resources["InferencePool"]["spec"]["selector"]["matchLabels"]
    (open_port,) = container["ports"]
    assert resources["Service"]["spec"]["ports"][0]["targetPort"] == open_port["name"] == resources["PodMonitor"]["spec"]["podMetricsEndpoints"][0]["port"]
    assert resources["InferencePool"]["spec"]["targetPorts"] == [{"number": open_port["containerPort"]}]
    target = resources["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
    assert (target["apiVersion"], target["kind"], target["name"]) == (deployment["apiVersion"], deployment["kind"], deployment["metadata"]["name"])
    pod = deployment["spec"]["template"]["spec"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    adapter = yaml.safe_load((FOLDER / "prometheus-adapter.yaml").read_text())
    wanted = {metric["pods"]["metric"]["name"] for metric in resources["HorizontalPodAutoscaler"]["spec"]["metrics"]}
    assert {rule["name"]["as"] for rule in adapter["rules"]} == wanted


def test_the_grace_period_covers_the_drain(resources, container, binary):
    pod = resources["Deployment"]["spec"]["template"]["spec"]
    help_text = subprocess.run([binary, "serve", "--help"], capture_output=True, text=True, check=True).stdout
    drain = int(re.search(r"--drain-timeout.*?(\d+)\s?s\b", help_text, re.DOTALL)[1])
    assert pod["terminationGracePeriodSeconds"] >= container["lifecycle"]["preStop"]["sleep"]["seconds"] + drain + 10
    assert pod["enableServiceLinks"] is False


def test_the_server_takes_the_arguments_and_answers_the_probes(container, start_server, tmp_path):
    (tmp_path / "keys").write_text("sk-test\n")
    command, model, *flags = container["args"]
    assert command == "serve" and model.startswith(container["volumeMounts"][0]["mountPath"])
    values = {"--host": "127.0.0.1", "--api-key-file": str(tmp_path / "keys"), "--device-memory": "256MiB"}
    for flag_name, value in values.items():
        flags[flags.index(flag_name) + 1] = value
    limit = container["resources"]["limits"]["memory"]
    assert int(re.match(r"\d+", container["args"][container["args"].index("--device-memory") + 1])[0]) < int(re.match(r"\d+", limit)[0])
    server = start_server(GOLDENS / "llama-gqa-rope3-f32", *flags)
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert server.get(container[probe]["httpGet"]["path"]).status_code == 200


def test_the_autoscaler_reads_series_that_a_server_publishes(start_server):
    server = start_server(GOLDENS / "llama-gqa-rope3-f32", "--policy", "omniserve")
    refused = server.post("/v1/completions", json={"prompt": "a", "slo": {"ttft_ms": 0.001}})
    assert refused.status_code == 429  # a reason is a label of refusals, which begin to be published with the first
    scrape = server.get("/metrics").text
    for rule in yaml.safe_load((FOLDER / "prometheus-adapter.yaml").read_text())["rules"]:
        series = re.match(r"\w+", rule["seriesQuery"])[0]
        assert re.search(rf"^(# TYPE )?{series}\b", scrape, re.MULTILINE), f"{series} is not in a scrape"
        assert series in rule["metricsQuery"]
    for label in ("answer", "reason"):
        assert re.search(rf'^tandem_admission_decisions_total\{{[^}}]*\b{label}="', scrape, re.MULTILINE), f"no label {label}"
