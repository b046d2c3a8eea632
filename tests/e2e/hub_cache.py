"""What the tests of models by name share: a mock hub, a cache, and how they are looked at."""
import os
import random
import resource
import subprocess

import pytest
from conftest import GOLDENS
from mock_hub import Hub

LLAMA = GOLDENS / "llama-gqa-rope3-f32"
WEIGHTS = random.Random(1).randbytes(3 << 20)
FILES = {"config.json": (LLAMA / "config.json").read_bytes(), "tokenizer.json": b'{"version": "1.0"}', "model.safetensors": WEIGHTS,
         "generation_config.json": b"{}", "added_tokens.json": b"{}",
         "README.md": b"# A model", "pytorch_model.bin": b"x" * 1000, "consolidated.safetensors": b"y" * 1000}
NEEDED = {"config.json", "tokenizer.json", "model.safetensors", "generation_config.json", "added_tokens.json"}  # the last two are the same
NAME = "org/some-model"
SECRET = "hf_secret_of_the_test"


@pytest.fixture
def hub():
    hub = Hub()
    yield hub
    hub.close()


@pytest.fixture
def home(tmp_path):
    return tmp_path / "hf"


def environment(hub, home, **more):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "TANDEM_", "HUGGING"))}
    return clean | {"HF_HOME": str(home), "HF_ENDPOINT": hub.url, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"} | more


def tandem(binary, hub, home, *arguments, limit=None, cwd=None, **more):
    def before():
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    done = subprocess.run([str(binary), *map(str, arguments)], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
                          env=environment(hub, home, **more), preexec_fn=before, cwd=cwd)
    return done.returncode, done.stdout, done.stderr


def folder_of(home, name=NAME):
    return home / "hub" / ("models--" + name.replace("/", "--"))


def snapshot_of(home, name=NAME, commit="a" * 40):
    return folder_of(home, name) / "snapshots" / commit


def check_whole(home, files=FILES, names=NEEDED):
    snapshot = snapshot_of(home)
    assert {path.name for path in snapshot.iterdir()} == names
    for name in names:
        assert (snapshot / name).read_bytes() == files[name], name
        assert (snapshot / name).is_symlink()
    assert (folder_of(home) / "refs" / "main").read_text() == "a" * 40
    assert not list((folder_of(home) / "blobs").glob("*.incomplete"))


def check_nothing_is_taken_for_whole(home):
    assert not (folder_of(home) / "refs" / "main").exists()
    assert not snapshot_of(home).exists()


def one_error(stderr):
    errors = [line for line in stderr.splitlines() if line.split()[2:3] == ["error"]]
    assert len(errors) == 1, stderr
    return errors[0]


def real_files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".json", ".safetensors") and path.name != "golden.json"}
