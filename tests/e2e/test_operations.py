"""What an operator installs: the board's metrics exist, the unit is well-formed, the error catalogue is whole."""
import json
import re
import shutil
import socket
import subprocess
import sys

import pytest
from conftest import BINARY, GOLDENS, ROOT, launch

PACKAGING = ROOT / "packaging"
WORDS = {"sum", "max", "avg", "count", "rate", "by", "on", "and", "le", "histogram_quantile", "min_over_time", "avg_over_time", "offset"}
# One server that publishes all that there is: two tiers, admission, a model of time, files and batches.
EVERYTHING = ("--max-model-len", "256", "--max-num-batched-tokens", "128", "--max-num-seqs", "8", "--policy", "omniserve", "--emulate-accelerator",
              "link-gbps=1", "--device-memory", "512MiB", "--host-memory", "64MiB")


def names_in(expression):
    """Metric names of a PromQL expression: words that are neither functions nor inside braces, brackets or `by (...)`."""
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\b(?:by|on) \([^)]*\)|offset \w+", "", expression)
    return {word for word in re.findall(r"[A-Za-z_][\w:]*", bare) if word not in WORDS}


def labels_in(expression):
    """Labels that an expression selects or groups by, without those that Prometheus adds."""
    wanted = {name for braces in re.findall(r"\{([^}]*)\}", expression) for name in re.findall(r"(\w+)=", braces)}
    wanted |= {label.strip() for group in re.findall(r"\bby \(([^)]*)\)", expression) for label in group.split(",")}
    return wanted - {"instance"}


@pytest.fixture(scope="module")
def everything(binary, tmp_path_factory):
    """(metric names, labels by name) of a server on which every metric is published."""
    profile = tmp_path_factory.mktemp("profile") / "tiers.json"
    model = GOLDENS / "llama-gqa-rope3-f32"
    done = subprocess.run([str(binary), "profile", str(model), *EVERYTHING, "-o", str(profile), "--time", "3s", "--held-out", "5"],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    server = launch(binary, "every-metric", model, *EVERYTHING, "--profile", profile, "--served-model-name", "golden", "--data-folder",
                    profile.parent / "data")
    server.openai().completions.create(model="golden", prompt="Hello", max_tokens=4, extra_body={"slo": {"ttft_ms": 60000}})
    server.openai().completions.create(model="golden", prompt="Hello", max_tokens=4, extra_body={"service_tier": "flex"})
    with server.http() as http:
        assert http.get("/no/such/path").status_code == 404
        text = http.get("/metrics").text
    # What the driver of a GPU says, by the GPU and the driver that the host plays.
    on_gpu = launch(binary, "gpu-metrics", model, "--device", str(BINARY.parent / "libtandem_cuda_on_host.so"), "--device-memory", "64MiB",
                    "--host-memory", "16MiB", env={"TANDEM_NVML": str(BINARY.parent / "libtandem_nvml_on_host.so")})
    assert on_gpu.metric("tandem_accelerator_power_watts", device="cuda:0") == 345.678
    with on_gpu.http() as http:
        text += http.get("/metrics").text
    metrics = server.metrics() + on_gpu.metrics()
    on_gpu.stop_cleanly()
    names = set(re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE))
    names |= {name + part for name in re.findall(r"^# TYPE (\S+) histogram$", text, re.MULTILINE) for part in ("_bucket", "_count", "_sum")}
    labels = {}
    for name, have, _ in metrics:
        labels.setdefault(name, set()).update(have)
    server.stop_cleanly()
    return names, labels


def check_expressions(expressions, everything):
    known, labels = everything
    used = set().union(*map(names_in, expressions))
    assert used and not used - known, f"not measured by the server: {sorted(used - known)}"
    for expression in expressions:
        for name in names_in(expression):
            if name in labels:  # a counter without an event yet shows no series
                # Of two names in one expression each has some of the labels.
                others = set().union(*(labels.get(other, set()) for other in names_in(expression)))
                assert labels_in(expression) - {"reason"} <= (labels[name] | others), f"{name} has no label {labels_in(expression) - labels[name]}"
    return used


def test_every_metric_of_the_board_is_in_a_scrape_and_so_are_its_labels(everything):
    board = json.loads((PACKAGING / "grafana.json").read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    used = check_expressions(expressions, everything)
    assert any(name.startswith("tandem_") for name in used) and any(name.startswith("vllm:") for name in used)
    for name in ("tandem_admission_decisions_total", "tandem_promised_ttft_late_seconds_count", "tandem_step_time_error_ratio_bucket",
                 "tandem_offloaded_sequences", "tandem_regime", "tandem_host_workers_lost", "process_resident_memory_bytes"):
        assert name in used
    assert all("instance" in expression for expression in expressions)
    assert [variable["name"] for variable in board["templating"]["list"]] == ["datasource", "model", "instance"]
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)


def test_every_metric_of_the_alert_rules_is_in_a_scrape_and_each_rule_is_tested(everything):
    text = (PACKAGING / "alerts.yaml").read_text()
    rules = re.findall(r"- alert: (\w+)", text)
    expressions = re.findall(r"\n        expr: (?:>\n)?(.*?)\n        (?:for|labels):", text, re.DOTALL)
    assert len(rules) == len(expressions) == 12
    check_expressions(expressions, everything)
    tested = re.findall(r"alertname: (\w+)", (PACKAGING / "alerts_test.yaml").read_text())
    assert sorted(tested) == sorted(rules)
    guide = (ROOT / "docs" / "operations.md").read_text()
    assert not [rule for rule in rules if f"`{rule}`" not in guide], "docs/operations.md names every rule beside its sign"


def test_the_alert_rules_fire_when_they_should():
    done = subprocess.run([str(ROOT / "scripts" / "check_alerts.sh")], capture_output=True, text=True)
    if done.returncode == 77:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_unit_keeps_its_profile_and_waits_for_load_and_drain():
    unit = (PACKAGING / "tandem.service.in").read_text()
    settings = dict(line.split("=", 1) for line in unit.splitlines() if "=" in line and not line.startswith("#"))
    assert settings["CacheDirectory"] == "tandem" and "XDG_CACHE_HOME=/var/cache" in unit
    assert int(settings["TimeoutStopSec"]) >= 90 and settings["TimeoutStartSec"]


@pytest.mark.parametrize("abstract", [False, True], ids=["path", "abstract"])
def test_the_service_manager_learns_when_it_serves_and_when_it_stops(start_server, tmp_path, abstract):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        name = f"@{tmp_path.name}-{abstract}" if abstract else str(tmp_path / "notify")
        manager.bind(name.replace("@", "\0"))
        manager.settimeout(10)
        server = start_server(GOLDENS / "llama-gqa-rope3-f32", env={"NOTIFY_SOCKET": name})
        assert manager.recv(4096) == b"STATUS=loads the model"
        assert manager.recv(4096).decode() == f"READY=1\nSTATUS=serves on port {server.port}"
        server.stop_cleanly()
        assert manager.recv(4096).startswith(b"STOPPING=1\n")


def test_a_service_manager_that_is_gone_does_not_stop_the_start(start_server, tmp_path):
    server = start_server(GOLDENS / "llama-gqa-rope3-f32", env={"NOTIFY_SOCKET": str(tmp_path / "gone")})
    server.stop_cleanly()
    assert "the service manager could not be notified" in server.log.read_text()


@pytest.mark.parametrize("script", [("packaging/make_grafana_board.py", "--check"), ("scripts/check_errors.py",)], ids=lambda script: script[0])
def test_what_is_derived_from_sources_is_up_to_date(script):
    done = subprocess.run([sys.executable, "-B", str(ROOT / script[0]), *script[1:]], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_unit_is_well_formed(tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here")
    unit = tmp_path / "tandem.service"
    unit.write_text((PACKAGING / "tandem.service.in").read_text().replace("@TANDEM_PREFIX@/bin/tandem", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True)
    ours = [line for line in done.stderr.splitlines() if "tandem.service" in line]
    assert not ours, "\n".join(ours)
