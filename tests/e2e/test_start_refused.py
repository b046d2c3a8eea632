"""Starts of `tandem serve` that must fail, with the exit code by which a service manager decides whether to restart it."""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile

import pytest
from conftest import GOLDENS
from test_command_line import run

LLAMA = GOLDENS / "llama-gqa-rope3-f32"


@pytest.fixture
def model(tmp_path):
    """A model folder that a test may break."""
    return shutil.copytree(LLAMA, tmp_path / "m")


def change_config(model, **fields):
    path = model / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.parametrize("fields, said", [
    ({"architectures": ["GPT2LMHeadModel"]}, "GPT2LMHeadModel"),
    ({"rope_scaling": {"rope_type": "foo", "factor": 2.0}}, "foo"),
    ({"quantization_config": {"quant_method": "foo"}}, "foo"),
], ids=["architecture", "rope", "quantization"])
def test_a_model_that_is_not_supported_ends_the_server_with_2(binary, model, fields, said):
    change_config(model, **fields)
    code, text = run(binary, "serve", model, "--port", "0")
    assert code == 2 and said in text, text


def test_a_missing_model_ends_the_server_with_2(binary, tmp_path):
    code, text = run(binary, "serve", tmp_path / "missing", "--port", "0")
    assert code == 2 and "there is no folder" in text, text


def test_a_hub_that_cannot_be_asked_ends_the_server_with_1(binary, tmp_path):
    environment = {"HF_ENDPOINT": "http://127.0.0.1:1", "HF_HOME": str(tmp_path)}
    code, text = run(binary, "serve", "org/name", "--port", "0", env=environment)
    assert code == 1 and "cannot be asked" in text, text
    code, text = run(binary, "serve", "org/name", "--offline", "--port", "0", env=environment)
    assert code == 1 and "is not in the cache" in text, text


def rewrite_header(change):
    """A function that changes the header of a model's weights; its length stays."""
    def apply(model):
        path = model / "model.safetensors"
        data = path.read_bytes()
        length, = struct.unpack("<Q", data[:8])
        header = json.loads(data[8:8 + length])
        change(header)
        text = json.dumps(header, separators=(",", ":")).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length:])
    return apply


def truncate(bytes_kept):
    return lambda model: (model / "model.safetensors").write_bytes((model / "model.safetensors").read_bytes()[:bytes_kept])


def split(index):
    """A function that names the weights by an index of shards."""
    def apply(model):
        (model / "model.safetensors").rename(model / "a.safetensors")
        (model / "model.safetensors.index.json").write_text(index)
    return apply


NORM = "model.norm.weight"
BROKEN_WEIGHTS = {
    "missing": (lambda model: (model / "model.safetensors").unlink(), "neither model.safetensors nor"),
    "empty": (truncate(0), "is empty"),
    "truncated": (truncate(-8), "is the file cut short?"),
    "header": (truncate(20), "header"),
    "index": (split("{"), "model.safetensors.index.json"),
    "index-tensor": (split('{"weight_map": {"x": "a.safetensors"}}'), "'x' is in a.safetensors"),
    "index-file": (split('{"weight_map": {"x": "b.safetensors"}}'), "b.safetensors"),
    "tensor": (rewrite_header(lambda header: header.pop(NORM)), f"tensor '{NORM}' [72] is missing"),
    "shape": (rewrite_header(lambda header: header[NORM].update(shape=[36, 2])), f"tensor '{NORM}' has shape [36, 2]"),
    "type": (rewrite_header(lambda header: header[NORM].update(dtype="I32")), f"tensor '{NORM}' is I32"),
}


@pytest.mark.parametrize("name", BROKEN_WEIGHTS)
def test_a_check_and_a_start_refuse_broken_weights_with_2(binary, model, name):
    spoil, said = BROKEN_WEIGHTS[name]
    spoil(model)
    for flags in (["--check"], ["--port", "0"]):
        code, text = run(binary, "serve", model, *flags)
        assert code == 2 and said in text and "all in order" not in text, text


def test_a_check_passes_for_weights_in_shards(binary, model):
    names = json.loads((model / "model.safetensors").read_bytes()[8:].split(b"}}", 1)[0] + b"}}")
    split(json.dumps({"weight_map": {name: "a.safetensors" for name in names if name != "__metadata__"}}))(model)
    code, text = run(binary, "serve", model, "--check")
    assert code == 0 and "all in order" in text, text


@pytest.mark.parametrize("flags, said", [
    (["--api-key", ""], "API key is empty"),
    (["--record-out", "FILE"], "cannot create the record file"),
    (["--record-out", "/nope/x"], "cannot create the record file '/nope/x': No such file"),
    (["--data-folder", "FILE"], "Not a directory"),
    (["--data-folder", "/nope/x"], "cannot make the folder '/nope/x': No such file"),
    (["--host", "foo.invalid"], "cannot find the address of host 'foo.invalid'"),
    (["--host", ""], "--host is empty"),
    (["--host", "203.0.113.1"], "this machine has no such address"),
], ids=lambda value: "-".join(value) if isinstance(value, list) else "")
def test_a_check_refuses_flags_with_which_the_server_cannot_start(binary, tmp_path, flags, said):
    file = tmp_path / "file"
    file.write_text("x")
    flags = [str(file) if flag == "FILE" else flag for flag in flags]
    code, text = run(binary, "serve", LLAMA, "--check", *flags)
    assert code == 2 and said in text and "all in order" not in text, text
    code, text = run(binary, "serve", LLAMA, "--port", "0", *flags)
    assert code in (1, 2) and said in text, text


def test_a_check_makes_no_files(binary, tmp_path):
    code, text = run(binary, "serve", LLAMA, "--check", "--record-out", tmp_path / "record", "--data-folder", tmp_path / "data")
    assert code == 0 and not list(tmp_path.iterdir()), text


@pytest.fixture
def run_as_nobody(binary):
    """A function that runs `tandem` in a folder without the rights of root."""
    def run_there(folder, *arguments):
        rights = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
        try:
            done = subprocess.run([str(binary), *map(str, arguments)], capture_output=True, text=True, timeout=60, cwd=folder,
                                  env=os.environ | {"HF_ENDPOINT": "http://127.0.0.1:1", "HF_HOME": "/nope", "HOME": "/nope"}, **rights)
        except PermissionError as error:
            pytest.skip(f"the rights of root cannot be dropped, or another user may not run the program: {error}")
        return done.returncode, done.stdout + done.stderr
    return run_there


@pytest.fixture
def open_folder():
    """A folder that every user may read: pytest's own are closed to others."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield pathlib.Path(name)


@pytest.mark.parametrize("locked, mode, given, named", [
    ("m", 0o000, "m", "m/config.json"),
    (".", 0o000, "m", "m"),
    (".", 0o000, "above/m", "above/m"),
    ("m/config.json", 0o000, "m", "m/config.json"),
    ("m/tokenizer.json", 0o000, "m", "m/tokenizer.json"),
    ("m/model.safetensors", 0o000, "m", "model.safetensors"),
], ids=["folder", "parent", "parent-like-a-name", "config", "tokenizer", "weights"])
def test_a_model_without_permission_is_not_called_missing(run_as_nobody, open_folder, locked, mode, given, named):
    above = open_folder / "above"
    shutil.copytree(LLAMA, above / "m")
    os.chmod(above / locked, mode)
    given = given if "/" in given else above / given
    code, text = run_as_nobody(open_folder, "serve", given, "--check")
    os.chmod(above / locked, 0o755)
    error = text.splitlines()[-1]
    assert code == 2 and "Permission denied" in error and named in error and "hub" not in error, text


def test_a_name_is_sought_on_the_hub_where_the_working_folder_may_not_be_searched(run_as_nobody, open_folder):
    (open_folder / "closed").mkdir(0o700)
    code, text = run_as_nobody(open_folder / "closed", "serve", "org/name", "--check")
    assert code == 2 and "cannot be asked" in text, text
