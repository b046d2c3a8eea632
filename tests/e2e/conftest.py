"""Fixtures of the end-to-end suite. It needs a built binary (TANDEM_BINARY, default build/dev/tandem); run it by ./test.sh --e2e."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile

import pytest
from server import Server

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GOLDENS = ROOT / "tests" / "goldens"
BINARY = pathlib.Path(os.environ.get("TANDEM_BINARY") or ROOT / "build" / "dev" / "tandem").resolve()
SHARED = pathlib.Path(os.environ.get("TANDEM_SHARED") or ROOT.parent / "shared").resolve()
LOGS = BINARY.parent / "e2e-logs" / os.environ.get("PYTEST_XDIST_WORKER", "")

# Tests that name no device mean the CPUs, also on a machine with a GPU.
if pathlib.Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TANDEM_DEVICE", "cpu")

# A shell that starts the suite in the background has it ignore SIGINT, and every program started from here would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        for server in Server.running:
            report.sections.append((f"server log {server.log}", server.log_tail(15)))


@pytest.fixture(scope="session")
def binary():
    if not BINARY.is_file():
        pytest.fail(f"{BINARY} is missing; build it (cmake --build --preset dev --target tandem) or set TANDEM_BINARY", pytrace=False)
    return BINARY


@pytest.fixture(scope="session")
def stories_model():
    """The trained golden model outside the repository: without it skip, but not in CI."""
    folder = SHARED / "models" / "stories260K"
    if not folder.is_dir():
        message = f"{folder} is missing; set TANDEM_SHARED"
        if os.environ.get("CI") == "true":
            pytest.fail(message, pytrace=False)
        pytest.skip(message)
    return folder


@pytest.fixture(scope="session")
def long_model(tmp_path_factory):
    """The golden Llama with room for 16k tokens, so that a request can be caught while it runs. Its words are noise anyway."""
    folder = tmp_path_factory.mktemp("models") / "long"
    shutil.copytree(GOLDENS / "llama-gqa-rope3-f32", folder)
    config = json.loads((folder / "config.json").read_text())
    config["max_position_embeddings"] = 16384
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="session")
def wide_model(binary, tmp_path_factory):
    """Rows of 256 and 512 weights: whole blocks and groups of every quantised format."""
    folder = tmp_path_factory.mktemp("wide") / "model"
    subprocess.run([binary, "model", "make", folder, "--preset", "tiny", "--layers", "2", "--hidden", "256", "--intermediate", "512", "--heads", "4", "--kv-heads", "2",
                    "--head-dim", "64", "--vocab", "512", "--tied-embeddings", "no"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return folder


# Profiles that servers measure, kept for this session's servers that name a policy. A server that names none sees an empty folder:
# what `auto` chooses must not depend on which test ran before.
CACHES = tempfile.TemporaryDirectory(prefix="tandem-e2e-")


def launch(binary, name, model, *flags, env=None):
    cache = pathlib.Path(CACHES.name) / ("named" if "--policy" in flags else f"auto-{len(Server.running)}")
    env = {"XDG_CACHE_HOME": str(cache)} | (env or {})
    return Server(binary, model, LOGS / (re.sub(r"\W+", "-", name) + ".log"), flags, env).wait_ready()


@pytest.fixture(scope="session")
def server(binary):
    """One server for everything that leaves it as it was: golden Llama, 512 tokens of context, fp32."""
    server = launch(binary, "server", GOLDENS / "llama-gqa-rope3-f32", "--served-model-name", "golden", "--served-model-name", "golden-alias")
    yield server
    server.stop_cleanly()


@pytest.fixture(scope="session")
def long_server(binary, long_model):
    server = launch(binary, "long-server", long_model, "--served-model-name", "long")
    yield server
    server.stop_cleanly()


@pytest.fixture(scope="session")
def stories(binary, stories_model):
    server = launch(binary, "stories", stories_model / "hf", "--served-model-name", "stories")
    yield server
    server.stop_cleanly()


@pytest.fixture
def start_server(binary, request):
    """start_server(model, *flags): a server of this test alone; must end with code 0."""
    started = []

    def start(model, *flags, env=None):
        started.append(launch(binary, f"{request.node.name}-{len(started)}", model, *flags, env=env))
        return started[-1]

    yield start
    for server in started:
        if server.process.returncode is None:
            server.stop_cleanly()
