"""The CUDA back end through HTTP. Without a GPU it runs over the host's CUDA (tests/cuda_on_host), from the same sources: that shows its
arithmetic, its order and the way of KV and rows between the tiers, nothing of a GPU. TANDEM_TEST_DEVICE=cuda runs these tests on one."""
import json
import os
import shutil
import subprocess

import pytest
from conftest import BINARY, CACHES, GOLDENS, ROOT, launch
from test_golden_text import FOLDERS, continue_as_transformers_does
from test_two_tiers import FLAGS, MODEL, answers

MEMORY = ("--device-memory", "256MiB", "--host-memory", "64MiB")
ON_GPU = os.environ.get("TANDEM_TEST_DEVICE", "").startswith("cuda")


@pytest.fixture(scope="session")
def device():
    name = os.environ.get("TANDEM_TEST_DEVICE") or str(BINARY.parent / "libtandem_cuda_on_host.so")
    if "/" in name and not os.path.exists(name):
        pytest.fail(f"{name} is missing; build it (cmake --build build/dev --target tandem_cuda_on_host_plugin)", pytrace=False)
    return ("--device", name, *MEMORY)


@pytest.mark.parametrize("folder", FOLDERS)
def test_random_models_continue_as_transformers_does(start_server, device, folder):
    continue_as_transformers_does(start_server(GOLDENS / folder, "--dtype", "float32", "--served-model-name", "golden", *device), folder)


@pytest.mark.parametrize("policy", ["piggyback", "overlap", "lanes"])
def test_offloaded_requests_get_the_answers_of_the_cpu(binary, device, policy):
    """Ten times more requests than the device's KV holds. Played by the host, device and CPU compute the same with the plain kernels; a
    GPU's sums differ in the last bits, so there only the least is asked: answers of the same length, and nothing left over."""
    plain_kernels = {"TANDEM_ISA": "ref"}
    graphs = {"TANDEM_CUDA_GRAPHS": "layers"} if policy == "overlap" else {}
    cpu = launch(binary, f"cuda-{policy}-cpu", MODEL, *FLAGS, "--device", "cpu", env=plain_kernels)
    wanted = answers(cpu)
    cpu.stop_cleanly()
    server = launch(binary, f"cuda-{policy}", MODEL, *FLAGS, *device, "--policy", policy, "--num-kv-blocks", "4", env=plain_kernels | graphs)
    got = answers(server)
    if ON_GPU:
        assert [one[3] for one in got if one[1] == "length"] == [one[3] for one in wanted if one[1] == "length"]
    else:
        assert got == wanted
    assert server.metric("tandem_hops_total") > len(got)
    assert server.metric("tandem_tier_transfer_bytes_total") > 0
    assert ("are a CUDA graph from now on" in server.log.read_text()) == bool(graphs)
    server.stop_cleanly()


def test_no_call_that_may_wait_is_made_while_requests_are_served(binary, device, tmp_path):
    if ON_GPU:
        pytest.skip("the host's CUDA notes such calls")
    waits = tmp_path / "waits"
    server = launch(binary, "cuda-waits", MODEL, *FLAGS, *device, "--policy", "piggyback", "--num-kv-blocks", "4", env={"CUDA_ON_HOST_WAITS": str(waits)})
    at_start = waits.read_text().splitlines()
    assert {"cudaMalloc", "cudaMemset"} <= set(at_start)
    answers(server)
    assert server.metric("tandem_hops_total") > 0
    assert waits.read_text().splitlines()[len(at_start):] == []
    server.stop_cleanly()
    assert "cudaFree" in waits.read_text().splitlines()[len(at_start):]


def test_a_timeline_shows_the_streams_of_the_gpu(binary, device, tmp_path):
    path = tmp_path / "timeline.json"
    server = launch(binary, "cuda-timeline", MODEL, *FLAGS, *device, "--policy", "piggyback", "--num-kv-blocks", "4", "--timeline-out", str(path))
    answers(server)
    server.stop_cleanly()
    events = json.loads(path.read_text())["traceEvents"]
    names = {event["tid"]: event["args"]["name"].split(": ")[-1] for event in events if event["name"] == "thread_name"}
    spans = {}
    for event in events:
        if event["ph"] == "X":
            spans.setdefault(names[event["tid"]], []).append(event)
    assert {"gemm", "attention", "row_gather", "sample"} <= {span["name"] for span in spans["compute"]}
    assert spans["to host"] and spans["to device"] and spans["swap"]
    # On one clock: what the engine launches first of all runs after it began to launch.
    assert min(span["ts"] for span in spans["to host"]) > min(span["ts"] for span in spans["binds"])


def test_two_tiers_measure_the_profile_that_omniserve_needs(binary, device, tmp_path):
    """Algorithms of products are timed with it, and later starts take the same: their sums are equal in all bits."""
    env = {"XDG_CACHE_HOME": str(tmp_path), "TANDEM_CUDA_ALGORITHMS": "timed"}
    if not ON_GPU:
        env |= {"TANDEM_CUBLASLT": str(BINARY.parent / "libtandem_cublaslt_on_host.so"), "CUBLASLT_ON_HOST_REPORT": str(tmp_path / "report.json")}
    small_steps = ("--max-num-seqs", "8", "--max-num-batched-tokens", "32", "--max-model-len", "128")  # the profile takes 4 s instead of 10
    flags = ("--served-model-name", "golden", *small_steps, *device, "--policy", "omniserve")

    def start(name):
        server = launch(binary, name, MODEL, *flags, env=env)
        reply = server.openai().completions.create(model="golden", prompt="Hi", max_tokens=8, logprobs=1, extra_body={"ignore_eos": True})
        server.stop_cleanly()
        if not ON_GPU:
            assert json.loads((tmp_path / "report.json").read_text())["refused"] == []
        return server.log.read_text(), reply.choices[0].logprobs.token_logprobs

    log, sums = start("cuda-profile")
    profile, = (tmp_path / "tandem" / "profiles").glob("*.json")
    measured = json.loads(profile.read_text())
    host = measured["host"]
    assert all(sum(host[part].values()) > 0 for part in ("attention", "to_host", "launch"))  # a busy machine may hide any one of a sum's parts
    assert f"tuning: {len(measured['choices'])} kinds of work were timed" in log
    log, again = start("cuda-profile-again")
    assert "tuning:" not in log and again == sums and len(sums) == 8


@pytest.mark.parametrize(("model", "dtype"), [(MODEL, "float32"), (ROOT / "models" / "tandem-tiny", "bfloat16")], ids=["float32", "bfloat16"])
def test_a_request_decoded_on_the_host_writes_what_it_writes_on_the_device(binary, device, model, dtype):
    """One request of 64 tokens on one server: as latency-sensitive it stays on the device, as best effort it is offloaded at once."""
    if ON_GPU:
        pytest.skip("the sums of a GPU and of its host differ in the last bits")
    server = launch(binary, f"cuda-equal-{dtype}", model, "--served-model-name", "m", "--dtype", dtype, *device, "--policy", "piggyback",
                    "--offload-below", "100", "--onload-above", "100", "--no-enable-prefix-caching", env={"TANDEM_ISA": "ref"})

    def ask(tier):
        reply = server.openai().completions.create(model="m", prompt="the fox and the hen " * 4, max_tokens=64, temperature=0, logprobs=2,
                                                   extra_body={"service_tier": tier, "ignore_eos": True})
        assert reply.usage.completion_tokens == 64
        return reply.choices[0].text, reply.choices[0].logprobs.token_logprobs

    stays = ask("default")
    assert server.metric("tandem_hops_total") == 0
    moves = ask("flex")
    assert server.metric("tandem_hops_total") > 64
    assert moves == stays
    server.stop_cleanly()


@pytest.fixture
def with_library(binary, request, device, tmp_path):
    """with_library(model, *flags): a server whose products are cuBLASLt's, as the host plays it; at its end nothing must have been refused."""
    library = BINARY.parent / "libtandem_cublaslt_on_host.so"
    if not device[1].endswith("on_host.so"):
        pytest.skip("the library is that of the host")
    report = tmp_path / "report.json"
    started = []

    def start(model, *flags):
        env = {"TANDEM_CUBLASLT": str(library), "CUBLASLT_ON_HOST_REPORT": str(report)}
        started.append(launch(binary, f"library-{request.node.name}", model, *flags, *device, env=env))
        return started[-1]

    yield start
    for server in started:
        assert "cuBLASLt 13.0.2" in server.log.read_text()
        server.stop_cleanly()
        found = json.loads(report.read_text())
        assert found["products"] > 100 and found["refused"] == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_random_models_continue_as_transformers_does_with_a_library_for_products(with_library, folder):
    continue_as_transformers_does(with_library(GOLDENS / folder, "--dtype", "float32", "--served-model-name", "golden"), folder)


def test_a_story_in_bfloat16_with_a_library_for_products(with_library, stories_model):
    server = with_library(stories_model / "hf", "--served-model-name", "stories", "--dtype", "bfloat16")
    case = json.loads((stories_model / "golden.json").read_text())["cases"][0]
    reply = server.openai().completions.create(model="stories", prompt=case["prompt"], max_tokens=100, temperature=0)
    assert case["text"].startswith(case["prompt"] + reply.choices[0].text)


def test_offloaded_requests_with_a_library_for_products(with_library):
    server = with_library(MODEL, *FLAGS, "--policy", "piggyback", "--num-kv-blocks", "4")
    wanted = [(30 + i) for i in range(40)]
    assert all(one[3] <= most for one, most in zip(answers(server), wanted))
    assert server.metric("tandem_hops_total") > len(wanted)


def test_a_residual_in_bfloat16_tells_a_story_and_moves_between_the_tiers(binary, device, stories_model):
    """The residual of offloaded requests waits in the store; moved bit by bit, it gives the answers of requests that stay."""
    narrow = {"TANDEM_CUDA_RESIDUAL": "bfloat16", "TANDEM_CUDA_PRODUCTS": "plain", "TANDEM_ISA": "ref"}
    server = launch(binary, "residual", stories_model / "hf", "--served-model-name", "stories", "--dtype", "bfloat16", *device, env=narrow)
    case = json.loads((stories_model / "golden.json").read_text())["cases"][0]
    reply = server.openai().completions.create(model="stories", prompt=case["prompt"], max_tokens=40, temperature=0)
    assert case["text"].startswith(case["prompt"] + reply.choices[0].text)
    server.stop_cleanly()
    flags = (*FLAGS, "--dtype", "bfloat16", *device, "--policy", "piggyback")
    roomy = launch(binary, "residual-roomy", MODEL, *flags, env=narrow)
    wanted = answers(roomy)
    assert roomy.metric("tandem_hops_total") == 0
    roomy.stop_cleanly()
    tight = launch(binary, "residual-tight", MODEL, *flags, "--num-kv-blocks", "4", env=narrow)
    got = answers(tight)
    if ON_GPU:
        assert [one[3] for one in got if one[1] == "length"] == [one[3] for one in wanted if one[1] == "length"]
    else:
        assert got == wanted
    assert tight.metric("tandem_hops_total") > len(got)
    tight.stop_cleanly()
    refused = run(binary, "serve", str(MODEL), *device, TANDEM_CUDA_RESIDUAL="half")
    assert refused.returncode == 2 and "TANDEM_CUDA_RESIDUAL is not known" not in refused.stderr
    assert "TANDEM_CUDA_RESIDUAL=half" in refused.stderr and "bfloat16" in refused.stderr


def test_a_library_that_cannot_be_used_is_said_with_the_cure(binary, device):
    if not device[1].endswith("on_host.so"):
        pytest.skip("the library is that of the host")
    done = run(binary, "serve", str(MODEL), *device, TANDEM_CUBLASLT="/nowhere/libcublasLt.so.13")
    assert done.returncode == 1
    for word in ("/nowhere/libcublasLt.so.13", "pip install nvidia-cublas", "TANDEM_CUDA_PRODUCTS=plain"):
        assert word in done.stderr


def test_quantised_weights_are_refused(binary, device):
    done = run(binary, "serve", str(MODEL), "--check", "--quantization", "int4", *device)
    assert done.returncode not in (0, -6, -11)
    assert "int4" in done.stderr and "--quantization none" in done.stderr


def run(binary, *arguments, **environment):
    return subprocess.run([str(binary), *arguments], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
                          env=os.environ | environment)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--device", "gpu"), ("'gpu' is not possible", "cuda:N")),
        (("--device", "cuda"), ("--host-memory", "8GiB")),
        (("--device", "cuda", "--emulate-accelerator", "auto", *MEMORY), ("--emulate-accelerator",)),
        (("--device", "/nowhere/libtandem_x.so", *MEMORY), ("/nowhere/libtandem_x.so", "not a device back end")),
        (("--device", "cuda", "--threads", "2", *MEMORY), ("--threads",)),
    ],
)
def test_flags_that_do_not_fit_are_refused_by_name(binary, flags, words):
    done = run(binary, "serve", str(MODEL), *flags)
    assert done.returncode not in (0, -6, -11)
    for word in words:
        assert word in done.stderr


def test_a_gpu_that_is_absent_is_said_with_reason_and_cure(binary):
    """No GPU is visible, on any machine: there may be no driver, no GPU, or no plugin in this build."""
    done = run(binary, "serve", str(MODEL), "--device", "cuda", *MEMORY, CUDA_VISIBLE_DEVICES="")
    assert done.returncode not in (0, -6, -11)
    assert "cuda: absent: " in done.stderr
    assert any(cure in done.stderr for cure in ("580 or newer", "CUDA_VISIBLE_DEVICES", "install_nvcc.sh"))
    versions = run(binary, "--version", "-v", CUDA_VISIBLE_DEVICES="")
    assert versions.returncode == 0
    assert "cpu: " in versions.stdout and "cuda: absent: " in versions.stdout


def test_an_installed_plugin_is_found(binary, device, tmp_path):
    """bin/tandem looks in lib/tandem. Played by the host, the plugin finds a GPU of its own."""
    if not device[1].endswith("on_host.so"):
        pytest.skip("the plugin's file is that of the host")
    (tmp_path / "bin").mkdir()
    (tmp_path / "lib" / "tandem").mkdir(parents=True)
    shutil.copy(binary, tmp_path / "bin" / "tandem")
    shutil.copy(device[1], tmp_path / "lib" / "tandem" / "libtandem_cuda.so")
    versions = run(tmp_path / "bin" / "tandem", "--version", "-v")
    assert versions.returncode == 0
    assert "cuda" in versions.stdout and "is not there" not in versions.stdout


def test_a_number_of_no_gpu_is_refused(binary):
    done = run(binary, "serve", str(MODEL), "--device", "cuda:x", *MEMORY)
    assert done.returncode not in (0, -6, -11)
    assert "'x' does not name a GPU" in done.stderr or "cuda: absent: " in done.stderr


def test_the_stages_of_check_sh_run_without_a_gpu(binary):
    done = subprocess.run([str(ROOT / "tools" / "gpu" / "check.sh"), "--dry-run", "--binaries", str(BINARY.parent), "env", "ops", "link"],
                          capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL,
                          env=os.environ | {"TANDEM_OPS_FILTER": "DenseOps.*:LibraryOps.*:RowOps.*"})  # ctest runs them all
    assert done.returncode == 0, done.stdout + done.stderr
    env, ops, link, summary = map(json.loads, done.stdout.splitlines())
    assert [each["stage"] for each in (env, ops, link)] == ["env", "ops", "link"] and all(each["ok"] for each in (env, ops, link))
    assert any(line.startswith("cuda:") for line in env["tandem"])
    assert [ops[kind]["passed"] for kind in ("plain", "fast", "library", "hopper")] == [13, 13, 13, 13] and ops["failed"] == []
    assert ops["library_differs_from_plain"].keys() == {"gemm bfloat16", "gate_up bfloat16", "gemm float32", "gate_up float32"}
    assert min(link["link_gb_per_s"].values()) > 0
    assert summary == {"summary": "3 of 3 stages passed", "failed": "", "dry_run": True}


def test_the_measuring_stages_of_check_sh_run_without_a_gpu(binary):
    """Tiny shapes: that every row is measured and reported, not how fast."""
    done = subprocess.run([str(ROOT / "tools" / "gpu" / "check.sh"), "--dry-run", "--binaries", str(BINARY.parent), "--limit", "120", "--limit",
                           "speed=200", "speed", "model", "sanitizer"], capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL,
                          env=os.environ | {"XDG_CACHE_HOME": CACHES.name})
    assert done.returncode == 0, done.stdout + done.stderr
    speed, model, sanitizer, summary = map(json.loads, done.stdout.splitlines())
    assert speed["left_out"] == 0 and min(speed["ceilings"].values()) > 0
    rows = {(row["op"], row["rows"], row.get("context")): row for row in speed["table"]}
    for wanted in (("attention decode", 4, 64), ("attention prefill", 64, 64), ("gemm gate_up", 16, None), ("gemm head", 1, None),
                   ("rms_norm", 16, None), ("rope_write", 1, None), ("row_gather", 16, None), ("sample greedy", 1, None),
                   ("sample top-p", 1, None), ("route and gather", 4, None)):
        assert rows[wanted]["us"] > 0
    assert [min(speed["prompts_us"][kernels].values()) > 0 for kernels in ("ampere", "hopper")] == [True, True]
    # The longest row of the products is the ceiling of operations; on a busy machine another may pass it.
    assert 0 < rows["gemm down", 16, None]["share"] < 10
    assert model["first_token_seconds"] > model["ready_seconds"] > 0
    assert [row["batch"] for row in model["http"]] == [1, 2, 1, 1] and min(row["tokens_per_s"] for row in model["http"]) > 0
    engine = model["engine"]
    assert [(row["batch"], row["graphs"]) for row in engine] == [(1, "off"), (2, "off"), (1, "layers"), (2, "layers"), (1, "off")]
    assert min(row["step_ms"] for row in engine) > 0
    assert min(model["tiers"][name] for name in ("alone_ms", "with_visitors_ms", "host_frozen_ms", "best_effort_tokens_per_s")) > 0
    assert model["driver"] == {} and sum(model["profile"]["host"]["attention"].values()) > 0
    assert sanitizer["passed"] >= 1
    assert summary == {"summary": "3 of 3 stages passed", "failed": "", "dry_run": True}


@pytest.mark.parametrize("limit", ["soon", "speed=0", "sped=10"])
def test_a_limit_that_is_not_possible_is_refused_by_check_sh(limit):
    done = subprocess.run([str(ROOT / "tools" / "gpu" / "check.sh"), "--limit", limit, "env"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 2 and f"--limit '{limit}'" in done.stderr


@pytest.mark.parametrize(("flags", "words"), [(("--device", "gpu"), ("'gpu' is not possible",)), (("--shapes", "34B"), ("1B or 8B",)),
                                              (("--device", "/nowhere/x.so"), ("/nowhere/x.so", "not a device back end"))])
def test_a_device_that_cannot_be_measured_is_refused(binary, flags, words):
    done = run(binary, "bench", "kernels", *flags)
    assert done.returncode in (1, 2)
    for word in words:
        assert word in done.stderr


def test_a_bench_on_a_device_names_what_its_memory_does_not_hold(binary, device, tmp_path):
    path = tmp_path / "rows.json"
    done = run(binary, "bench", "kernels", "--device", device[1], "--shapes", "tiny", "--passes", "1", "--only", "attention", "--device-memory",
               "12MiB", "--json", str(path))
    assert done.returncode == 0, done.stderr
    found = json.loads(path.read_text())
    assert {row["op"] for row in found["rows"]} >= {"gemm square"} and len(found["rows"]) + len(found["left_out"]) == 6
    assert "--device-memory" in done.stdout


@pytest.mark.parametrize(("flags", "words"), [((), ("--model DIR",)), (("--model", str(MODEL), "--step-ms", "5"), ("--step-ms",)),
                                              (("--model", str(MODEL), "--resident-prompt", "600"), ("600", "context of 512"))])
def test_bench_tiers_on_a_device_says_what_it_needs(binary, device, flags, words):
    done = run(binary, "bench", "tiers", "--device", device[1], *flags)
    assert done.returncode == 2
    for word in words:
        assert word in done.stderr


def test_windows_of_bench_tiers_end_before_a_short_context_is_full(binary, device, tmp_path):
    """Steps of the tiny model take well under a millisecond, and each grows the residents by one of 512 tokens."""
    path = tmp_path / "tiers.json"
    done = run(binary, "bench", "tiers", "--device", device[1], "--model", str(MODEL), "--residents", "2", "--resident-prompt", "16", "--offloaded", "2",
               "--offloaded-prompt", "16", "--seconds", "2", "--rounds", "1", "--json", str(path))
    assert done.returncode == 0, done.stderr
    assert "room for 496 tokens" in done.stdout
    found = json.loads(path.read_text())
    windows = [found["residents_alone"], *found["with_visitors"], *found["host_frozen"], found["residents_alone_after"]]
    assert min(window["steps"] for window in windows) > 0 and sum(window["steps"] for window in windows) < 496


def test_a_failed_stage_of_check_sh_is_reported_and_stops_no_other(binary):
    done = subprocess.run([str(ROOT / "tools" / "gpu" / "check.sh"), "--device", "/nowhere/x.so", "--binaries", str(BINARY.parent), "ops", "link"],
                          capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
    assert done.returncode == 1
    ops, link, summary = map(json.loads, done.stdout.splitlines())
    assert not ops["ok"] and ops["passed"] == 0 and not link["ok"]
    assert summary["failed"] == "ops link"
