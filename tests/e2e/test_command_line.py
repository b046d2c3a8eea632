"""How a server is told what to do: help, flags as vLLM writes them, variables, --check, and what it says when they are wrong."""
import os
import re
import subprocess

import openai
import pytest
from conftest import GOLDENS, ROOT

LLAMA = GOLDENS / "llama-gqa-rope3-f32"


def run(binary, *arguments, env=None, seconds=60):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TANDEM_")}
    done = subprocess.run([str(binary), *map(str, arguments)], capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL,
                          env=clean | (env or {}))
    return done.returncode, done.stdout + done.stderr


def check(binary, *flags, env=None):
    return run(binary, "serve", LLAMA, "--check", *flags, env=env)


def test_help_has_groups_and_three_examples_on_pages_of_a_hundred_columns(binary):
    code, text = run(binary, "serve", "--help")
    assert code == 0
    groups = re.findall(r"^([A-Z][\w ]+):$", text, re.MULTILINE)
    assert {"Model", "Scheduling", "Memory", "HTTP", "Limits", "TLS", "Operation", "Examples"} <= set(groups)
    assert len(re.findall(r"^  tandem serve ", text, re.MULTILINE)) == 3
    assert max(map(len, text.splitlines())) <= 100
    assert "1073741824" not in text and "--tensor-parallel-size" not in text


def test_without_a_command_the_help_is_shown(binary):
    code, text = run(binary)
    assert code == 2
    assert all(f"\n  {name} " in text for name in ("serve", "batch", "bench", "profile", "replay", "model"))


@pytest.mark.parametrize("arguments, said", [
    (("serve", "--helpp"), "unknown flag --helpp, did you mean --help?"),
    (("serve", LLAMA, "--first-wrong", "1", "--second-wrong", "2"), "unknown flag --first-wrong "),
    (("serve", LLAMA, "--max-num-seq=4"), "unknown flag --max-num-seq, did you mean --max-num-seqs?"),
    (("bench", "serve", "--ratee", "4"), "unknown flag --ratee"),
])
def test_the_first_wrong_flag_is_named(binary, arguments, said):
    code, text = run(binary, *arguments)
    assert code == 2
    assert said in text and len(text.strip().splitlines()) == 1


def test_version_names_the_commit(binary):
    code, text = run(binary, "--version")
    assert code == 0
    assert re.fullmatch(r"\d+\.\d+\.\d+(-dev\.\d+|\+\d+)?( \([0-9a-f]{12}(-changed)?\))?\n", text)


def test_check_shows_the_plan_and_ends(binary):
    code, text = check(binary)
    assert code == 0
    assert "memory plan:" in text and "KV blocks" in text and "all in order" in text
    assert "ready:" not in text and "loading weights" not in text


def test_a_check_of_two_tiers_shows_two_plans_by_name(binary):
    code, text = check(binary, "--emulate-accelerator", "auto", "--device-memory", "64MiB", "--host-memory", "64MiB")
    assert code == 0
    assert text.index("memory plan: accelerator") < text.index("memory plan: host\n") < text.index("host KV blocks")


@pytest.mark.parametrize("flags, said", [
    (("--device-memory", "1KiB"), "--device-memory"),
    (("--device-memory", "8GiB", "--gpu-memory-utilization", "0.5"), "--gpu-memory-utilization"),
    (("--ssl-certfile", "/no/such.pem"), "/no/such.pem"),
    (("--api-key-file", "/no/such/keys"), "/no/such/keys"),
    (("--tokenizer", "/no/such/folder"), "/no/such/folder"),
    (("--chat-template", "/no/such.jinja"), "--chat-template: '/no/such.jinja' is neither a file nor a template"),
    (("--chat-template", "{% if %}"), "--chat-template"),
    (("--max-model-len", "4Q"), "'4Q' is not a number of tokens"),
    (("--max-model-len", "0"), "--max-model-len"),
    (("--max-num-batched-tokens", "1.5"), "--max-num-batched-tokens"),
    (("--log-format", "xml"), "--log-format"),
])
def test_a_check_that_fails_has_code_2_and_names_the_flag(binary, flags, said):
    code, text = check(binary, *flags)
    assert code == 2 and said in text, text


def settings(binary, *flags, env=None):
    """What --check says of the configuration, as text."""
    code, text = check(binary, *flags, env=env)
    assert code == 0, text
    return next(line for line in text.splitlines() if " configuration: " in line), text


@pytest.mark.parametrize("flags, said", [
    (("--max-model-len", "256"), "up to 256 tokens"),
    (("--max_model_len", "256"), "up to 256 tokens"),
    (("--max-model-len", "auto"), "up to 512 tokens"),
    (("--max-num-batched-tokens", "2k"), " 2000 tokens a step"),
    (("--max-num-batched-tokens", "2K"), " 2048 tokens a step"),
    (("--enable-prefix-caching",), "prefix caching on"),
    (("--enable-prefix-caching", "off"), "prefix caching off"),
    (("--enable-prefix-caching=false",), "prefix caching off"),
    (("--no-enable-prefix-caching",), "prefix caching off"),
    (("--no-enable-prefix-caching", "--enable-prefix-caching"), "prefix caching on"),
    (("--dtype", "bfloat16"), "weights in bfloat16"),
])
def test_flags_mean_what_they_mean_to_vllm(binary, flags, said):
    assert said in settings(binary, *flags)[0]


def test_a_command_line_of_vllm_is_accepted_and_says_what_had_no_effect(binary):
    _, text = settings(
        binary, "-tp", "1", "--pipeline-parallel-size=1", "--enforce-eager", "--disable-log-requests", "--trust-remote-code", "--load-format",
        "safetensors", "--gpu-memory-utilization", "0.5", "--num-gpu-blocks-override", "40", "--no-enable-log-requests", "--dtype", "auto",
        "--enable-chunked-prefill", "--generation-config", "auto",
    )
    assert "in 40 blocks" in text
    assert "accepted without effect: --enforce-eager: there are no graphs to capture" in text
    assert "accepted without effect: --tensor-parallel-size 1:" in text


def test_a_model_may_be_named_by_flag(binary):
    assert run(binary, "serve", "--model", LLAMA, "--check")[0] == 0


def model_line(binary, *arguments, env=None):
    """What --check says of the model."""
    code, text = run(binary, "serve", "--check", *arguments, env=env)
    assert code == 0, text
    return next(line for line in text.splitlines() if "million parameters" in line)


HIDDEN = "hidden 72,"  # of LLAMA; Tandem's own model has another


@pytest.mark.parametrize("flags", [
    ("--served-model-name", "prod"), ("--served-model-name", "prod", "--served-model-name", "test"), ("--api-key=k1",),
    ("--data-folder=",), ("--objective", "chat level=1"),
])
def test_a_model_may_follow_any_flag(binary, flags):
    assert HIDDEN in model_line(binary, *flags, LLAMA)


@pytest.mark.parametrize("last", ["served-model-name: llama", "api-key: k1", 'data-folder: ""', "allowed-origins: [a, b]"])
def test_a_model_may_follow_any_key_of_the_file(binary, tmp_path, last):
    (tmp_path / "tandem.yaml").write_text(f"max-num-seqs: 4\n{last}\n")
    assert HIDDEN in model_line(binary, "--config", tmp_path / "tandem.yaml", LLAMA)


@pytest.mark.parametrize("value", ["maybe", "99999999999999999999999"])
def test_a_switch_takes_true_or_false_from_every_source(binary, tmp_path, value):
    (tmp_path / "tandem.yaml").write_text(f"no-ui: {value}\n")
    for flags, env, named in (((f"--no-ui={value}",), {}, "--no-ui"), (("--config", tmp_path / "tandem.yaml"), {}, "--no-ui"),
                              ((), {"TANDEM_NO_UI": value}, "TANDEM_NO_UI"), ((f"--trust-remote-code={value}",), {}, "--trust-remote-code")):
        code, text = check(binary, *flags, env=env)
        assert code == 2 and named in text and value in text and "true or false" in text, text
    assert check(binary, "--no-ui=true", env={"TANDEM_OFFLINE": "off"})[0] == 0


@pytest.mark.parametrize("flags, said", [
    (("--tensor-parallel-size", "2"), "--tensor-parallel-size: '2' is not possible, only 1; "),
    (("-tp=2",), "--tensor-parallel-size: '2' is not possible"),
    (("--no-enable-chunked-prefill",), "--no-enable-chunked-prefill: "),
    (("--enable-lora",), "merge the adapter"),
    (("--quantization", "awq"), "int4"),
    (("--quantization", "int8", "--dtype", "float32"), "--dtype"),
    (("--tool-call-parser", "hermes"), "come back as text"),
    (("--enable-log-requests",), "--record-out"),
    (("--dtype", "half"), "bfloat16"),
])
def test_what_tandem_cannot_do_is_refused_with_what_to_do_instead(binary, flags, said):
    code, text = check(binary, *flags)
    assert code == 2 and said in text, text


def test_the_table_of_vllms_flags_is_the_documents(binary):
    code, table = run(binary, "serve", "--list-vllm-flags")
    assert code == 0
    assert len(table.splitlines()) > 42
    assert table in (ROOT / "docs" / "from-vllm.md").read_text(), "put the output of tandem serve --list-vllm-flags into docs/from-vllm.md"


KUBERNETES = {
    "TANDEM_PORT": "tcp://10.0.0.1:8000",
    "TANDEM_SERVICE_HOST": "10.0.0.1",
    "TANDEM_SERVICE_PORT": "8000",
    "TANDEM_SERVICE_PORT_HTTP": "8000",
    "TANDEM_PORT_8000_TCP": "tcp://10.0.0.1:8000",
    "TANDEM_PORT_8000_TCP_ADDR": "10.0.0.1",
    "TANDEM_PORT_8000_TCP_PORT": "8000",
    "TANDEM_PORT_8000_TCP_PROTO": "tcp",
}


def test_variables_that_kubernetes_sets_are_ignored_with_one_warning(binary):
    code, text = check(binary, env=KUBERNETES)
    assert code == 0
    warnings = [line for line in text.splitlines() if " warning " in line]
    assert len(warnings) == 1 and all(name in warnings[0] for name in KUBERNETES), text
    assert "Service" in warnings[0]


def test_variables_are_flags_and_misspelt_ones_are_named(binary):
    line, _ = settings(binary, env={"TANDEM_MAX_NUM_SEQS": "7"})
    assert " 7 sequences" in line
    code, text = check(binary, env={"TANDEM_PORT": "many"})
    assert code == 2 and "many" in text
    _, text = settings(binary, env={"TANDEM_MAX_NUM_SEQ": "7"})
    assert "TANDEM_MAX_NUM_SEQ is not known and is ignored, did you mean TANDEM_MAX_NUM_SEQS?" in text


def test_kernels_are_an_option_like_any_other(binary, tmp_path):
    code, text = run(binary, "serve", "--help")
    assert code == 0 and "--isa VALUE" in text and "avx512bf16" in text and "[auto]" in text
    file = tmp_path / "isa.yaml"
    file.write_text("isa: ref\n")
    for flags, env in ((("--isa", "ref"), {}), (("--config", file), {}), ((), {"TANDEM_ISA": "ref"}), (("--isa=ref",), {"TANDEM_ISA": "avx2"})):
        code, text = check(binary, *flags, env=env)
        assert code == 0 and "kernels: ref (as asked for)" in text, text
    for flags, env in ((("--isa", "sse"), {}), ((), {"TANDEM_ISA": "sse"})):
        code, text = check(binary, *flags, env=env)
        assert code == 2 and '--isa: unknown instruction set "sse"; known: ref, neon, avx2' in text, text
    for command in (("replay", "/no/such/record", "--model", LLAMA), ("bench", "model", LLAMA), ("bench", "loss", LLAMA), ("profile", LLAMA)):
        code, text = run(binary, *command, env={"TANDEM_ISA": "sse"})
        assert code == 2 and "unknown instruction set" in text, (command, text)


def test_help_shows_ranges_and_names(binary):
    text = " ".join(run(binary, "serve", "--help")[1].split())
    assert "Sequences that run at a time (1 to 65536 sequences) [256]" in text
    assert "--dtype auto|bfloat16|float32" in text and "--log-level trace|debug|info|warning|error|off" in text
    assert "(0.01 to 1)" in text and "(0 to 100 percent) [5]" in text
    manual = run(binary, "manual")[1]
    assert "(1 to 65536 sequences)" in manual


@pytest.mark.parametrize("command", ["replay", "profile", "tune", "simulate", "serve", ("batch", "run")])
def test_every_command_that_runs_a_model_takes_a_log_level(binary, command):
    names = (command,) if isinstance(command, str) else command
    code, text = run(binary, *names, "--help")
    assert code == 0 and "--log-level trace|debug|info|warning|error|off" in text
    code, text = run(binary, *names, "--log-level", "loud")
    assert code == 2 and "--log-level: unknown log level 'loud' (known: trace, debug" in text, text


def test_options_of_the_engine_are_the_same_in_every_command(binary):
    def options(*names):
        text = run(binary, *names, "--help")[1]
        found = {}
        for line in text.splitlines():
            if (flag := re.match(r"  --([\w-]+)", line)):
                found[flag[1]] = line
            elif line.startswith(" " * 34) and found:
                found[list(found)[-1]] += line
        return {name: " ".join(line.split()) for name, line in found.items()}
    serve = options("serve")
    for command in (("replay",), ("profile",), ("batch", "run"), ("bench", "model"), ("bench", "loss")):
        own = options(*command)
        assert all(own[name] == serve[name] for name in ("threads", "numa", "isa")), command
    assert options("bench", "kernels")["threads"] == serve["threads"]


def test_the_config_file_may_be_named_by_a_variable(binary, tmp_path):
    file, other = tmp_path / "a.yaml", tmp_path / "b.yaml"
    file.write_text("max-num-seqs: 7\nenforce-eager: true\nenable_prefix_caching: false\nmax-model-len: 128\n")
    other.write_text("max-num-seqs: 9\n")
    line, text = settings(binary, env={"TANDEM_CONFIG": str(file)})
    assert " 7 sequences of up to 128 tokens" in line and "prefix caching off" in line
    assert "--enforce-eager" in text
    line, _ = settings(binary, "--config", other, env={"TANDEM_CONFIG": str(file)})
    assert " 9 sequences of up to 512 tokens" in line
    code, text = check(binary, env={"TANDEM_CONFIG": "/no/such.yaml"})
    assert code == 2 and "/no/such.yaml" in text


def test_a_chat_template_takes_the_place_of_the_models(start_server, tmp_path):
    template = tmp_path / "mine.jinja"
    template.write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    messages = [{"role": "user", "content": "Hello there"}]
    for given in (str(template), template.read_text()):
        server = start_server(LLAMA, "--chat-template", given)
        with server.http() as http:
            chat = http.post("/tokenize", json={"model": server.model_name(), "messages": messages}).json()
            plain = http.post("/tokenize", json={"model": server.model_name(), "prompt": "Hello there", "add_special_tokens": False}).json()
            assert chat["tokens"] == plain["tokens"]
            assert http.get("/v1/tandem/config").json()["chat_template"] == given


def test_another_tokenizer_is_used(start_server, tmp_path):
    server = start_server(LLAMA, "--tokenizer", LLAMA)
    assert server.openai().completions.create(model=server.model_name(), prompt="Hello", max_tokens=2).usage.completion_tokens == 2


# Flags that are no options, and options whose key is not their name.
NO_OPTIONS = {"help", "config", "list-vllm-flags"}
OTHER_KEYS = {
    "device": "device_choice", "device-memory": "memory_bytes", "enable-prefix-caching": "prefix_caching", "host-memory": "host_memory_bytes",
    "num-kv-blocks": "kv_blocks", "num-gpu-blocks-override": "kv_blocks", "objective": "objectives", "record-limit": "record_limit_bytes",
}


def test_the_configuration_shows_every_flag_of_the_help_and_no_key(binary, start_server, tmp_path):
    _, text = run(binary, "serve", "--help")
    flags = set(re.findall(r"--([a-z][a-z0-9-]+)", "\n".join(line for line in text.splitlines() if re.match(r" {2,6}\S", line)).split("Examples:")[0]))
    flags -= NO_OPTIONS
    assert len(flags) > 60
    keys = tmp_path / "secret-keys"
    keys.write_text("sk-hush-2 max-class=flex\n")
    server = start_server(LLAMA, "--api-key", "sk-hush-1", "--api-key-file", keys, "--idle-timeout", "9s", "--objective", "chat level=2",
                          "--max-body-size", "1MiB", "--offload-below", "31")
    with server.http() as http:
        reply = http.get("/v1/tandem/config")
    config = reply.json()
    missing = {flag for flag in flags if OTHER_KEYS.get(flag, flag.replace("-", "_")) not in config}
    assert not missing
    assert "sk-hush" not in reply.text and str(tmp_path) not in reply.text
    assert config["api_key"] == "***" and config["api_key_file"] == "secret-keys"
    assert (config["idle_timeout"], config["max_body_size"], config["objectives"]) == ("9s", 1 << 20, ["chat level=2"])
    assert config["offload_below"] == 31 and config["record_out"] is None and config["kv_blocks"] > 0


@pytest.mark.parametrize("flags, said", [
    (("--idle-timeout", "75"), "--idle-timeout: '75' has an unknown unit"),
    (("--max-num-seqs", "0"), "--max-num-seqs: '0' is not a whole number of 1 to 65536 sequences"),
    (("--overload-status", "200"), "--overload-status: '200' is not possible; choose 429 or 503 or 529"),
    (("--numa", "some"), "--numa: "),
    (("--policy", "fifo"), "--policy: unknown policy 'fifo' (known: auto, accel_only, sarathi"),
    (("--offload-below", "101"), "--offload-below: '101' is not a whole number of 0 to 100 percent"),
    (("--max-body-size", "1GiB"), "--max-request-bytes (512MiB) must be at least --max-body-size (1GiB)"),
])
def test_a_wrong_value_names_flag_value_and_limit(binary, flags, said):
    code, text = check(binary, *flags)
    assert code == 2 and said in text, text


def test_keys_of_flag_file_and_variable_add_up(start_server, tmp_path):
    (tmp_path / "tandem.yaml").write_text("api-key: sk-yaml\n")
    (tmp_path / "keys").write_text("sk-file\n")
    server = start_server(LLAMA, "--api-key", "sk-flag", "--config", tmp_path / "tandem.yaml", "--api-key-file", tmp_path / "keys",
                          env={"TANDEM_API_KEY": "sk-variable"})
    for key in ("sk-flag", "sk-yaml", "sk-file", "sk-variable"):
        assert server.openai(key=key).models.list().data
    with pytest.raises(openai.AuthenticationError):
        server.openai(key="sk-other").models.list()


def test_a_model_on_the_command_line_wins_over_the_file_and_may_not_differ(binary, tmp_path):
    (tmp_path / "tandem.yaml").write_text("model: /no/such/model\n")
    config = ("--config", tmp_path / "tandem.yaml")
    assert HIDDEN in model_line(binary, *config, LLAMA)
    assert HIDDEN in model_line(binary, "--model", LLAMA, *config)
    assert HIDDEN in model_line(binary, LLAMA, "--model", LLAMA)
    for arguments in ((LLAMA, "--model", "/other"), ("--model", "/other", LLAMA), ("--model=/other", "--model", LLAMA)):
        code, text = run(binary, "serve", "--check", *arguments)
        assert code == 2 and "/other" in text and str(LLAMA) in text and "leave one of them out" in text, text


def test_a_config_file_cannot_name_another(binary, tmp_path):
    (tmp_path / "tandem.yaml").write_text("port: 0\nconfig: other.yaml\n")
    code, text = check(binary, "--config", tmp_path / "tandem.yaml")
    assert code == 2 and "'config'" in text and "(line 2)" in text, text
