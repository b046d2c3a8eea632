"""Servers for the tests of the page at / (test_page.py, test_page_browser.py): fixtures to import."""
import subprocess

import pytest
from conftest import GOLDENS, launch

MODEL = GOLDENS / "llama-gqa-rope3-f32"
# One server that has all that the panel shows: two tiers, admission, a model of time.
EVERYTHING = ("--max-model-len", "256", "--max-num-batched-tokens", "128", "--max-num-seqs", "8", "--policy", "omniserve", "--emulate-accelerator",
              "link-gbps=1", "--device-memory", "512MiB", "--host-memory", "64MiB")


@pytest.fixture(scope="module")
def everything(binary, tmp_path_factory):
    profile = tmp_path_factory.mktemp("profile") / "tiers.json"
    done = subprocess.run([str(binary), "profile", str(MODEL), *EVERYTHING, "-o", str(profile), "--time", "1s", "--held-out", "5"],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    server = launch(binary, "page-everything", MODEL, *EVERYTHING, "--profile", profile, "--served-model-name", "golden")
    server.openai().completions.create(model="golden", prompt="Hello", max_tokens=4, extra_body={"slo": {"ttft_ms": 60000}})
    yield server
    server.stop_cleanly()


@pytest.fixture(scope="module")
def slow_model(binary, tmp_path_factory):
    """Some milliseconds a token, so that an answer can be caught while it comes."""
    folder = tmp_path_factory.mktemp("models") / "slow"
    subprocess.run([str(binary), "model", "make", "--preset", "tiny", "--layers", "4", "--hidden", "1024", "--heads", "16", "--kv-heads", "4", "--head-dim",
                    "64", "--intermediate", "2816", "--max-positions", "16384", str(folder)], check=True, capture_output=True, timeout=300)
    return folder


@pytest.fixture(scope="module")
def slow(binary, slow_model):
    server = launch(binary, "page-slow", slow_model, "--served-model-name", "slow", "--device-memory", "1GiB")
    yield server
    server.stop_cleanly()


@pytest.fixture(scope="module")
def keyed(binary):
    server = launch(binary, "page-key", MODEL, "--api-key", "sk-page", "--served-model-name", "golden")
    yield server
    server.stop_cleanly()
