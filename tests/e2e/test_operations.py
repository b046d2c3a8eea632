"""What an operator installs: the board's metrics exist, the unit is well-formed, the error catalogue is whole."""
import json
import re
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT

PACKAGING = ROOT / "packaging"
WORDS = {"sum", "max", "rate", "by", "le", "histogram_quantile"}


def names_in(expression):
    """Metric names of a PromQL expression: words that are neither functions nor inside braces, brackets or `by (...)`."""
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\bby \([^)]*\)", "", expression)
    return {word for word in re.findall(r"[A-Za-z_][\w:]*", bare) if word not in WORDS}


def test_every_metric_of_the_board_is_in_a_scrape_and_so_are_its_labels(server):
    server.openai().completions.create(model="golden", prompt="Hello", max_tokens=4)
    with server.http() as http:
        assert http.get("/no/such/path").status_code == 404
        text = http.get("/metrics").text
    declared = set(re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE))
    histograms = set(re.findall(r"^# TYPE (\S+) histogram$", text, re.MULTILINE))
    known = declared | {f"{name}_bucket" for name in histograms}
    labels = {}
    for name, have, _ in server.metrics():
        labels.setdefault(name, set()).update(have)
    board = json.loads((PACKAGING / "grafana.json").read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    used = set().union(*map(names_in, expressions))
    assert used and not used - known, f"not measured by the server: {sorted(used - known)}"
    assert any(name.startswith("tandem_") for name in used) and any(name.startswith("vllm:") for name in used)
    for expression in expressions:
        wanted = set(re.findall(r"\{(\w+)=", expression))
        wanted |= {label.strip() for group in re.findall(r"\bby \(([^)]*)\)", expression) for label in group.split(",")}
        for name in names_in(expression):
            if name in labels:  # a counter without an event yet shows no series
                assert wanted <= labels[name], f"{name} has no label {wanted - labels[name]}"
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("script", [("packaging/make_grafana_board.py", "--check"), ("scripts/check_errors.py",)], ids=lambda script: script[0])
def test_what_is_derived_from_sources_is_up_to_date(script):
    done = subprocess.run([sys.executable, "-B", str(ROOT / script[0]), *script[1:]], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_unit_is_well_formed(tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here")
    unit = tmp_path / "tandem.service"
    unit.write_text((PACKAGING / "tandem.service").read_text().replace("/usr/local/bin/tandem", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True)
    ours = [line for line in done.stderr.splitlines() if "tandem.service" in line]
    assert not ours, "\n".join(ours)
