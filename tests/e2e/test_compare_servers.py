"""`scripts/compare_servers.sh`: a comparison of Tandem alone with a tiny model, servers that fail, and wrong input."""
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "scripts" / "compare_servers.sh"
MODEL = ROOT / "tests" / "goldens" / "llama-gqa-rope3-f32"
SMALL = ("--runs", 1, "--seconds", 1, "--timeout", 20, "--chat-rate", 4, "--bulk-rate", 3, "--chat-tokens", "12+6", "--bulk-tokens", "40+8", "--ttft-ms", 20000,
         "--tpot-ms", 5000)


def compare(binary, out, *arguments):
    done = subprocess.run([str(part) for part in (SCRIPT, "--binary", binary, "--model", MODEL, "--out", out, *SMALL, *arguments)], capture_output=True, text=True,
                          timeout=300, check=False)
    return done.returncode, done.stdout + done.stderr


def program(path, text):
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)
    return path


def test_tandem_alone(binary, tmp_path):
    code, text = compare(binary, tmp_path / "out", "--servers", "tandem")
    assert code == 0, text
    report = json.loads((tmp_path / "out" / "result.json").read_text())
    (run,) = report["runs"]
    assert run["chat_answered"] == run["chat_planned"] == 4 and run["bulk_answered"] == run["bulk_planned"] == 3
    assert run["attainment"] == 100 and run["goodput"] == 4
    assert 0 < run["chat_ttft_50"] <= run["chat_ttft_99"] and run["chat_tokens_s"] > 0
    assert run["peak_mib"] > 1 and 0 < run["load_s"] < 60
    table = (tmp_path / "out" / "table.md").read_text()
    assert "| chat: answered, of 4 | 4 |" in table and "goodput of chat" in table and str(ROOT) not in table
    assert table in text


def test_a_server_that_dies_is_reported_in_its_cells(binary, tmp_path):
    dead = program(tmp_path / "llama-server", "import sys\nsys.exit(0 if '--help' in sys.argv else 7)\n")
    gguf = tmp_path / "weights.gguf"
    gguf.touch()
    code, text = compare(binary, tmp_path / "out", "--servers", "tandem,llama-server", "--llama-server", dead, "--gguf", gguf)
    assert code == 1, text
    table = (tmp_path / "out" / "table.md").read_text()
    assert "| chat: answered, of 4 | 4 | failed |" in table
    assert "llama-server, run 1: ended while it started (code 7); see its server.log." in table


@pytest.mark.parametrize("arguments, cause", [
    (("--servers", "tandem,nginx"), "unknown server 'nginx'"),
    (("--seconds", "0"), "'0' is not above 0"),
    (("--bulk-tokens", "512"), "'512' is not PROMPT+ANSWER"),
    (("--port", "99999"), "'99999' is not a port"),
    (("--port", "-3"), "'-3' is not a port"),
    (("--binary", "/nowhere/tandem"), "/nowhere/tandem is not a program; build it"),
    (("--servers", "llama-server", "--llama-server", "/nowhere/llama"), "/nowhere/llama is not a program; compile it (bench/peers/install.sh --server)"),
    (("--servers", "vllm", "--vllm", "/nowhere/vllm"), "there is no program '/nowhere/vllm'"),
    (("--servers", "tandem", "--model", "/nowhere/model"), "/nowhere/model is not a model folder"),
])
def test_wrong_input_is_refused_with_its_cause(binary, tmp_path, arguments, cause):
    code, text = compare(binary, tmp_path / "out", *arguments)
    assert code == 2 and cause in text, text
    assert "Traceback" not in text


def test_a_busy_port_is_named(binary, tmp_path):
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        code, text = compare(binary, tmp_path / "out", "--servers", "tandem", "--port", port)
    assert code == 1 and f"port {port} is busy" in text, text


def test_an_interrupt_stops_the_server(binary, tmp_path):
    with open(tmp_path / "text", "w+", encoding="utf-8") as text:
        command = [SCRIPT, "--binary", binary, "--model", MODEL, "--out", tmp_path / "out", *SMALL, "--servers", "tandem", "--seconds", 60]
        script = subprocess.Popen([str(part) for part in command], stdout=text, stderr=text)
        log = tmp_path / "out" / "tandem-0" / "load.log"
        end = time.monotonic() + 60
        while not (log.exists() and log.stat().st_size > 0) and time.monotonic() < end:
            time.sleep(0.05)
        script.send_signal(signal.SIGINT)
        code = script.wait(60)
        text.seek(0)
        assert code == 130 and "servers are stopped" in text.read()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                line = pathlib.Path("/proc", entry, "cmdline").read_bytes()
            except OSError:
                continue
            assert not (b"serve" in line.split(b"\0") and str(tmp_path).encode() in line)
