"""`tandem serve` without --device: it takes a GPU that serves the model, and the CPUs otherwise, with the reason. The host plays the GPU
and cuBLASLt (tests/cuda_on_host)."""
import json
import os
import shutil
import subprocess
import sys

import pytest
from conftest import BINARY, GOLDENS, ROOT, launch

sys.path.insert(0, str(ROOT / "tools" / "packed"))

import make_packed  # noqa: E402

MODEL = GOLDENS / "llama-gqa-rope3-f32"
TINY = ROOT / "models" / "tandem-tiny"
MEMORY = ("--device-memory", "64MiB")
TOO_MUCH = ("--device-memory", "1000TiB")  # for the GPU; the plan for the CPUs takes only the memory that the model can use
LIBRARY = {"TANDEM_CUBLASLT": str(BINARY.parent / "libtandem_cublaslt_on_host.so")}
GPU = "device: the GPU (auto: a GPU is there and serves the model)"
CPUS = "device: the CPUs (auto: "


@pytest.fixture(autouse=True)
def no_device_is_named(monkeypatch):
    monkeypatch.delenv("TANDEM_DEVICE", raising=False)


def install(folder, *plugin):
    """A program in bin/ with its model, and with the named plugin for GPUs in lib/tandem/."""
    (folder / "bin").mkdir()
    (folder / "share" / "tandem" / "models").mkdir(parents=True)
    (folder / "share" / "tandem" / "models" / TINY.name).symlink_to(TINY)
    shutil.copy(BINARY, folder / "bin" / "tandem")
    for file in plugin:
        (folder / "lib" / "tandem").mkdir(parents=True)
        shutil.copy(file, folder / "lib" / "tandem" / "libtandem_cuda.so")
    return folder / "bin" / "tandem"


@pytest.fixture(scope="module")
def with_gpu(binary, tmp_path_factory):
    plugin = BINARY.parent / "libtandem_cuda_on_host.so"
    if not plugin.is_file():
        pytest.fail(f"{plugin} is missing; build it (cmake --build build/dev --target tandem_cuda_on_host_plugin)", pytrace=False)
    return install(tmp_path_factory.mktemp("with-gpu"), plugin)


@pytest.fixture(scope="module")
def without_plugin(binary, tmp_path_factory):
    return install(tmp_path_factory.mktemp("without-plugin"))


def run(binary, *flags, env=LIBRARY):
    done = subprocess.run([str(binary), "serve", *map(str, flags)], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
                          env=os.environ | env)
    return done.returncode, done.stdout + done.stderr


def check(binary, *flags, env=LIBRARY):
    code, text = run(binary, MODEL, "--check", *flags, env=env)
    assert code == 0 and "check: all in order" in text, text
    return text


def config_of(server):
    with server.http() as http:
        return http.get("/v1/tandem/config").json()


def chat(server, question):
    reply = server.openai().chat.completions.create(model=server.model_name(), messages=[{"role": "user", "content": question}], temperature=0)
    return reply.choices[0].message.content, reply.choices[0].finish_reason


def test_the_gpu_serves_on_two_tiers(with_gpu):
    server = launch(with_gpu, "auto-gpu", MODEL, *MEMORY, env=LIBRARY)
    reply = server.openai().completions.create(model=server.model_name(), prompt="x", max_tokens=3, extra_body={"ignore_eos": True})
    assert reply.usage.completion_tokens == 3
    text = server.log.read_text()
    assert text.count(GPU) == 1 and CPUS not in text
    config = config_of(server)
    assert config["device"].startswith("cuda:0 (") and config["isa"].startswith("cuda-cublaslt") and config["device_choice"] == "auto"
    assert config["policy"] == "piggyback" and config["host_kv_blocks"] > 0
    server.stop_cleanly()


@pytest.mark.parametrize(("model", "bound"), [([MODEL], 384 << 20), ([], 512 << 20)], ids=["a model", "the default model"])
def test_the_second_tier_has_an_eighth_of_the_free_memory_within_what_the_model_can_use(with_gpu, model, bound):
    """The model can use KV of 256 sequences with 512 tokens of 1 KiB, and 256 MiB of buffers."""
    code, text = run(with_gpu, *model, "--check", "--log-format", "json")
    configuration = next(json.loads(line)["configuration"] for line in text.splitlines() if '"configuration"' in line)
    assert code == 0 and configuration["device"].startswith("cuda:0 (")
    assert 0 < configuration["host_memory_bytes"] <= bound


def test_host_memory_that_is_given_is_taken(with_gpu):
    text = check(with_gpu, *MEMORY, "--host-memory", "48MiB")
    assert GPU in text and "of 48.0 MiB" in text


def test_kernels_that_are_named_with_an_option_for_a_gpu_are_for_the_host(with_gpu):
    assert GPU in check(with_gpu, *MEMORY, "--host-memory", "48MiB", "--isa", "ref")


OBSTACLES = [
    (TOO_MUCH, "of GPU memory are asked for"),
    (("--quantization", "int8"), "has no products with weights of int8"),
    (("--threads", "1"), "--threads does not go with an accelerator"),
    (("--gpu-memory-utilization", "0.5"), "--gpu-memory-utilization does not go with"),
    (("--isa", "ref"), "--isa names kernels of the CPUs"),
]


@pytest.mark.parametrize(("flags", "reason"), OBSTACLES, ids=lambda value: value[0] if isinstance(value, tuple) else "")
def test_the_cpus_serve_if_the_gpu_cannot_and_the_check_says_the_same(with_gpu, flags, reason):
    text = check(with_gpu, *flags)
    assert text.count(CPUS) == 1 and reason in text and GPU not in text
    assert " million parameters), cpu (" in text and "memory plan: host" not in text
    server = launch(with_gpu, "auto-cpus", MODEL, *flags, env=LIBRARY)
    assert reason in server.log.read_text() and server.log.read_text().count(CPUS) == 1
    config = config_of(server)
    assert config["device"].startswith("cpu (") and "host_kv_blocks" not in config and config["host_memory_bytes"] in (0, None)
    server.stop_cleanly()


def test_the_check_shows_the_gpu(with_gpu):
    text = check(with_gpu, *MEMORY)
    assert text.count(GPU) == 1 and CPUS not in text
    assert " million parameters), cuda:0 (" in text and "memory plan: host" in text


def test_quantised_weights_of_files_become_bfloat16_on_the_gpu_as_if_it_was_named(with_gpu, wide_model, tmp_path):
    make_packed.convert(wide_model, tmp_path / "packed", kind="awq", group=32)
    for device in ((), ("--device", "cuda", "--host-memory", "64MiB")):
        code, text = run(with_gpu, tmp_path / "packed", "--check", *MEMORY, *device)
        assert code == 0 and "they become bfloat16" in text and "cuda:0 (" in text and CPUS not in text


def test_answers_on_the_cpus_end_as_those_of_a_server_that_was_never_offered_a_gpu(with_gpu, tmp_path):
    """What loading the tokenizer found holds on whichever device: its own end token, which config.json does not name, ends answers."""
    shutil.copytree(TINY, tmp_path / "model")
    for name in ("config.json", "generation_config.json"):
        file = tmp_path / "model" / name
        if file.is_file():
            file.write_text(json.dumps({key: value for key, value in json.loads(file.read_text()).items() if key != "eos_token_id"}))
    questions = ["What is 47 + 38?", "Sort these numbers: 5 3 9 1", "Who are you?"]
    plain = launch(with_gpu, "auto-plain", tmp_path / "model", "--device", "cpu")
    wanted, end_tokens = [chat(plain, question) for question in questions], config_of(plain)["end_tokens"]
    plain.stop_cleanly()
    assert len(end_tokens) == 1 and wanted[0] == ("47 + 38 = 85", "stop")
    fallen_back = launch(with_gpu, "auto-fallen-back", tmp_path / "model", *TOO_MUCH, env=LIBRARY)
    assert CPUS in fallen_back.log.read_text()
    assert config_of(fallen_back)["end_tokens"] == end_tokens
    assert [chat(fallen_back, question) for question in questions] == wanted
    fallen_back.stop_cleanly()
    on_gpu = launch(with_gpu, "auto-on-gpu", tmp_path / "model", "--device-memory", "256MiB", env=LIBRARY)
    assert GPU in on_gpu.log.read_text() and config_of(on_gpu)["end_tokens"] == end_tokens
    assert chat(on_gpu, questions[0]) == wanted[0]
    on_gpu.stop_cleanly()


@pytest.mark.parametrize("env", [{}, LIBRARY | {"TANDEM_CUDA_PRODUCTS": "plain"}], ids=["not found", "not wanted"])
def test_a_gpu_without_cublaslt_is_left_with_the_cure(with_gpu, env):
    text = check(with_gpu, *MEMORY, env=env)
    assert text.count(CPUS) == 1 and "has no cuBLASLt for its products" in text and "pip install nvidia-cublas" in text
    assert " million parameters), cpu (" in text
    assert " million parameters), cuda:0 (" in check(with_gpu, *MEMORY, "--device", "cuda", "--host-memory", "64MiB", env=env)


@pytest.mark.parametrize("option", [("--host-memory", "64MiB"), ("--timeline-out", "timeline.json"), ("--prompts-to-host", "offload"),
                                    ("--group-stages", "2"), ("--hop-patience", "1s")], ids=lambda option: option[0])
def test_an_option_for_the_gpu_makes_its_errors_errors(with_gpu, option):
    code, text = run(with_gpu, MODEL, *TOO_MUCH, *option)
    assert code == 1 and f"{option[0]} is for two tiers, and --device auto cannot take a GPU" in text and "of GPU memory are asked for" in text
    assert CPUS not in text
    code, text = run(with_gpu, MODEL, "--threads", "1", *option)
    assert code == 2 and "--threads does not go with an accelerator" in text
    code, text = run(with_gpu, MODEL, *MEMORY, *option, env={})
    assert code == 1 and "has no cuBLASLt" in text
    assert GPU in check(with_gpu, *MEMORY, *option)


@pytest.mark.parametrize("env", [{"TANDEM_CUDA_RESIDUAL": "half"}, {"TANDEM_CUBLASLT": "/nowhere/libcublasLt.so.13"},
                                 {"TANDEM_NVML": "/nowhere/libnvidia-ml.so.1"}], ids=lambda env: next(iter(env)))
def test_a_wrong_variable_of_the_gpu_is_an_error(with_gpu, env):
    code, text = run(with_gpu, MODEL, *MEMORY, env=LIBRARY | env)
    assert code in (1, 2) and next(iter(env.values())) in text and CPUS not in text


def test_a_gpu_that_is_named_is_never_replaced(with_gpu):
    for flags, words in ((TOO_MUCH, "of GPU memory are asked for"), (("--quantization", "int8"), "int8")):
        code, text = run(with_gpu, MODEL, "--device", "cuda", "--host-memory", "64MiB", *flags)
        assert code in (1, 2) and words in text and "auto:" not in text.replace("(auto: no target", "")


def test_a_device_that_a_variable_or_a_file_names_is_taken(with_gpu, tmp_path):
    text = check(with_gpu, *MEMORY, env=LIBRARY | {"TANDEM_DEVICE": "cpu"})
    assert "device: the" not in text and " million parameters), cpu (" in text
    (tmp_path / "tandem.yaml").write_text("device: cpu\n")
    assert "device: the" not in check(with_gpu, *MEMORY, "--config", tmp_path / "tandem.yaml")
    (tmp_path / "tandem.yaml").write_text("device: auto\n")
    assert GPU in check(with_gpu, *MEMORY, "--config", tmp_path / "tandem.yaml")


def test_an_emulated_accelerator_is_the_device_that_was_asked_for(with_gpu):
    text = check(with_gpu, *MEMORY, "--emulate-accelerator", "auto", "--host-memory", "64MiB")
    assert "device: the" not in text and "cuda" not in text


def test_without_the_plugin_the_cpus_serve_silently_and_the_check_says_why(without_plugin):
    server = launch(without_plugin, "auto-no-plugin", MODEL)
    assert "device: the" not in server.log.read_text()
    server.stop_cleanly()
    assert f"{CPUS}cuda: absent: " in check(without_plugin)
    for option in (("--host-memory", "64MiB"), ("--timeline-out", "timeline.json")):
        code, text = run(without_plugin, MODEL, *option)
        assert code == 2 and f"{option[0]} is for two tiers" in text


def test_an_error_on_every_device_is_said_once(with_gpu):
    code, text = run(with_gpu, MODEL, "--step-budget", "20ms", "--policy", "sarathi")
    assert code == 2 and CPUS not in text and text.count("--step-budget") == 1
    code, text = run(with_gpu, "/nowhere/model")
    assert code != 0 and CPUS not in text
