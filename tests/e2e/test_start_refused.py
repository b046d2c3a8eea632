"""Starts of `tandem serve` that must fail, with the exit code that tells a service manager whether to try again."""
import json
import shutil

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
