"""Checkpoints that are quantised already (GPTQ, AWQ, compressed-tensors): the same answers as from their weights as numbers, and one clear error
for unsupported and broken files."""
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from conftest import ROOT
from test_gguf import answers, info, prompt_logprobs, refusal

sys.path.insert(0, str(ROOT / "tools" / "packed"))

import make_packed  # noqa: E402

FORMATS = {
    "gptq int4-symmetric": dict(kind="gptq", group=128),
    "gptq int4": dict(kind="gptq_v2", group=64, symmetric=False),
    "gptq int8": dict(kind="gptq", bits=8),
    "awq int4": dict(kind="awq", group=32),
    "compressed-tensors int4-symmetric": dict(kind="pack-quantized", group=128, scales="BF16"),
    "compressed-tensors int4": dict(kind="pack-quantized", group=32, symmetric=False),
    "compressed-tensors int8": dict(kind="int-quantized", bits=8, scales="BF16"),
}


def config(server):
    return server.get("/v1/tandem/config").json()


def relative(told, wanted):
    return np.linalg.norm(np.subtract(told, wanted)) / np.linalg.norm(wanted)


@pytest.mark.parametrize("name", FORMATS)
def test_quantised_weights_stay_quantised(start_server, wide_model, tmp_path, name):
    make_packed.convert(wide_model, tmp_path / "packed", **FORMATS[name], dequantised=tmp_path / "numbers")
    wanted = prompt_logprobs(start_server(tmp_path / "numbers", "--dtype", "float32"))
    server = start_server(tmp_path / "packed")
    assert config(server)["weights"] == name + "+bfloat16" and config(server)["quantization"] == "auto"
    told = prompt_logprobs(server)
    assert relative(told, wanted) < 2e-2
    assert max(abs(a - b) for a, b in zip(wanted, told)) < 0.05
    none = start_server(tmp_path / "packed", "--quantization", "none")
    assert config(none)["weights"] == "bfloat16"
    assert relative(prompt_logprobs(none), wanted) < 2e-2


@pytest.mark.parametrize("name", ["gptq int4", "awq int4", "compressed-tensors int8"])
def test_numbers_are_the_same_as_from_the_folder_of_numbers(start_server, wide_model, tmp_path, name):
    make_packed.convert(wide_model, tmp_path / "packed", **FORMATS[name], dequantised=tmp_path / "numbers")
    for dtype in ("float32", "bfloat16"):
        wanted = answers(start_server(tmp_path / "numbers", "--dtype", dtype))
        assert answers(start_server(tmp_path / "packed", "--dtype", dtype, "--quantization", "none")) == wanted


def test_layers_that_are_left_out_stay_numbers(start_server, wide_model, tmp_path):
    make_packed.convert(wide_model, tmp_path / "packed", kind="awq", group=64, keep=["v_proj", "down_proj"], dequantised=tmp_path / "numbers")
    wanted = prompt_logprobs(start_server(tmp_path / "numbers", "--dtype", "float32"))
    server = start_server(tmp_path / "packed")
    assert config(server)["weights"] == "awq int4+bfloat16"
    assert relative(prompt_logprobs(server), wanted) < 2e-2


def test_columns_ordered_by_their_activations_are_int8_or_as_they_were(start_server, wide_model, tmp_path):
    make_packed.convert(wide_model, tmp_path / "packed", kind="gptq", group=64, act_order=True, dequantised=tmp_path / "numbers")
    wanted = prompt_logprobs(start_server(tmp_path / "numbers", "--dtype", "float32"))
    server = start_server(tmp_path / "packed")
    assert config(server)["weights"] == "gptq int8+bfloat16"
    assert relative(prompt_logprobs(server), wanted) < 2e-2
    numbers = start_server(tmp_path / "packed", "--quantization", "none", "--dtype", "float32")
    assert prompt_logprobs(numbers) == wanted


def test_a_record_of_a_quantised_checkpoint_replays(binary, start_server, wide_model, tmp_path):
    make_packed.convert(wide_model, tmp_path / "packed", kind="gptq", group=32)
    server = start_server(tmp_path / "packed", "--record-out", tmp_path / "run.jsonl")
    first = answers(server)
    assert answers(server) == first
    server.stop_cleanly()
    done = subprocess.run([binary, "replay", tmp_path / "run.jsonl", "--model", tmp_path / "packed"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "identical" in done.stdout, done.stdout + done.stderr
    two_tiers = start_server(tmp_path / "packed", "--emulate-accelerator", "auto", "--num-kv-blocks", "8", "--device-memory", "64MiB", "--host-memory", "64MiB",
                             "--offload-below", "100", "--onload-above", "100")
    assert answers(two_tiers) == first


def test_info_tells_format_and_bytes(binary, wide_model, tmp_path):
    make_packed.convert(wide_model, tmp_path / "packed", kind="gptq", group=128)
    code, text = info(binary, tmp_path / "packed")
    assert code == 0 and "gptq, 4 bits in groups of 128, symmetric" in text, text
    told = json.loads(info(binary, tmp_path / "packed", "--json")[1])
    assert told["quantization"] == "gptq, 4 bits in groups of 128, symmetric"
    needs = told["needs"]
    assert list(needs)[0] == "gptq int4-symmetric+bfloat16"
    assert needs["gptq int4-symmetric+bfloat16"]["weight_bytes"] == needs["int4-symmetric"]["weight_bytes"] < needs["int8"]["weight_bytes"]
    assert json.loads(info(binary, wide_model, "--json")[1])["quantization"] == ""


def test_activations_in_fewer_bits_are_left_out_with_a_warning(start_server, wide_model, tmp_path):
    make_packed.convert(wide_model, tmp_path / "packed", kind="int-quantized", bits=8)
    change_config(tmp_path / "packed", lambda q: q["config_groups"]["group_0"].update(input_activations={"num_bits": 8, "dynamic": True}))
    server = start_server(tmp_path / "packed")
    log = server.log.read_text()
    assert "input_activations: is not computed" in log and "unless --activations int8 rounds them" in log
    assert len(answers(server)) == 3


def test_rounded_activations_need_the_stored_weights(binary, wide_model, tmp_path):
    make_packed.convert(wide_model, tmp_path / "packed", kind="gptq", group=32)
    command = [binary, "serve", tmp_path / "packed", "--check", "--activations", "int8"]
    assert subprocess.run(command, capture_output=True, timeout=60).returncode == 0
    done = subprocess.run([*command, "--dtype", "float32"], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "which --dtype float32 replaces by numbers" in done.stderr, done.stdout + done.stderr


def change_config(folder, change):
    path = folder / "config.json"
    whole = json.loads(path.read_text())
    change(whole["quantization_config"])
    path.write_text(json.dumps(whole))


def set_word(folder, suffix, index, word):
    """Overwrites a word of the first tensor whose name ends so."""
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    length = int.from_bytes(data[:8], "little")
    entry = next(entry for name, entry in json.loads(data[8:8 + length]).items() if name.endswith(suffix))
    at = 8 + length + entry["data_offsets"][0] + 4 * index
    data[at:at + 4] = word
    path.write_bytes(data)


REFUSED = {
    "three bits": (lambda f: change_config(f, lambda q: q.update(bits=3)), "quantization_config.bits: is 3; supported are 4 and 8 bits"),
    "marlin": (lambda f: change_config(f, lambda q: q.update(checkpoint_format="marlin")), "checkpoint_format: 'marlin' is not supported"),
    "fp8": (lambda f: change_config(f, lambda q: q.update(quant_method="fp8")), "quant_method: 'fp8' is not supported; supported are gptq, awq"),
    "other groups": (lambda f: change_config(f, lambda q: q.update(group_size=64)), "does config.json belong to it?"),
    "zero points": (lambda f: set_word(f, ".qzeros", 0, b"\x11\x11\x11\x11"), "has the zero point 2"),
    "no such group": (lambda f: set_word(f, ".g_idx", 7, b"\xff\xff\xff\x7f"), "gives column 7 the group 2147483647"),
    "infinite scale": (lambda f: set_word(f, ".scales", 3, b"\x00\x7c\x00\x7c"), "is infinite, no number, or too large for fp16"),
    "no scale": (lambda f: rename(f, b".scales", b".scalez"), "' beside it; is the download complete?"),
}


def rename(folder, old, new):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes().replace(old, new, 1))


@pytest.fixture(scope="module")
def gptq_model(wide_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("gptq") / "model"
    make_packed.convert(wide_model, folder, kind="gptq", group=128)
    return folder


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_and_broken_checkpoints_are_one_clear_error(binary, gptq_model, tmp_path, name):
    spoil, says = REFUSED[name]
    shutil.copytree(gptq_model, tmp_path / "spoiled")
    spoil(tmp_path / "spoiled")
    if name in ("zero points", "order", "no such group", "infinite scale"):  # found when the weights are loaded
        done = subprocess.run([binary, "serve", tmp_path / "spoiled", "--port", "0"], capture_output=True, text=True, timeout=60)
        assert done.returncode != 0
        assert says in done.stdout + done.stderr, done.stdout + done.stderr
    else:
        assert says in refusal(binary, tmp_path / "spoiled")
