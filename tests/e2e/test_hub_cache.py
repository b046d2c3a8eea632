"""Models by name: the cache that is shared with Hugging Face's tools and other processes, and starts without a hub. All against mock_hub.py."""
import json
import pathlib
import subprocess

import pytest
from hub_cache import (FILES, LLAMA, NAME, NEEDED, WEIGHTS, check_nothing_is_taken_for_whole, check_whole, environment, folder_of, home, hub, one_error, real_files, snapshot_of, tandem)  # noqa: F401
from mock_hub import git_hash, wait_for


def test_a_full_disk_keeps_what_came(binary, hub, home):
    hub.add(NAME, FILES)
    code, _, err = tandem(binary, hub, home, "pull", NAME, limit=1 << 20)
    assert code == 1 and "ulimit -f" in one_error(err)
    check_nothing_is_taken_for_whole(home)
    hub.forget()
    code, _, err = tandem(binary, hub, home, "pull", NAME)
    assert code == 0, err
    check_whole(home)
    begin = hub.asked("model.safetensors", "cdn")[0]["Range"]
    assert 0 < int(begin.removeprefix("bytes=").removesuffix("-")) <= 1 << 20


@pytest.mark.parametrize("finished", [True, False])
def test_a_file_that_another_process_takes_away(binary, hub, home, finished):
    """Where locks do not work: the other process was quicker, or removed the file."""
    repository = hub.add(NAME, FILES)
    hub.pause["model.safetensors"] = 0.05
    process = subprocess.Popen([str(binary), "pull", NAME], env=environment(hub, home), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    blob = folder_of(home) / "blobs" / repository.checksum("model.safetensors")
    incomplete = pathlib.Path(f"{blob}.incomplete")
    wait_for(lambda: incomplete.exists() and incomplete.stat().st_size > 200_000)
    incomplete.unlink()
    if finished:
        blob.write_bytes(WEIGHTS)
    _, err = process.communicate(timeout=30)
    if finished:
        assert process.returncode == 0, err
        check_whole(home)
    else:
        assert process.returncode == 1 and "another process" in one_error(err)
        check_nothing_is_taken_for_whole(home)


def test_two_processes_share_the_work(binary, hub, home):
    hub.add(NAME, FILES)
    hub.pause["model.safetensors"] = 0.03
    processes = [subprocess.Popen([str(binary), "pull", NAME], env=environment(hub, home), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                 for _ in range(3)]
    said = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], said
    check_whole(home)
    assert len(hub.asked("model.safetensors", "cdn")) == 1


def test_half_a_cache_of_another_tool_is_completed(binary, hub, home):
    repository = hub.add(NAME, FILES)
    folder = folder_of(home)
    for below in ("blobs", "refs", "snapshots/" + "a" * 40, "snapshots/" + "b" * 40):
        (folder / below).mkdir(parents=True)
    (folder / "refs/main").write_text("b" * 40)  # an older commit
    blob = folder / "blobs" / repository.checksum("model.safetensors")
    pathlib.Path(f"{blob}.incomplete").write_bytes(WEIGHTS[:500_000] + b"not what the hub has")
    pathlib.Path(f"{blob}.1a2b3c4d.incomplete").write_bytes(b"another tool's")
    (folder / "blobs" / repository.checksum("config.json")).write_bytes(FILES["config.json"])
    (snapshot_of(home) / "config.json").symlink_to("../../blobs/" + repository.checksum("config.json"))
    (snapshot_of(home) / "tokenizer.json").symlink_to("../../blobs/" + repository.checksum("tokenizer.json"))  # to nothing as yet
    code, _, err = tandem(binary, hub, home, "pull", NAME, "--offline")
    assert code == 1 and "run `tandem pull" in one_error(err)
    code, _, err = tandem(binary, hub, home, "pull", NAME)
    assert code == 0, err
    for name in NEEDED:
        assert (snapshot_of(home) / name).read_bytes() == FILES[name]
    assert pathlib.Path(f"{blob}.1a2b3c4d.incomplete").exists(), "what is another tool's is left alone"
    assert not hub.asked("/config.json")


def test_offline_takes_what_is_there(binary, hub, home):
    hub.add(NAME, FILES)
    code, _, err = tandem(binary, hub, home, "pull", NAME, "--offline")
    assert code == 1 and "not in the cache" in one_error(err)
    assert tandem(binary, hub, home, "pull", NAME)[0] == 0
    hub.forget()
    for flags, more in ((["--offline"], {}), ([], {"HF_HUB_OFFLINE": "1"})):
        code, out, err = tandem(binary, hub, home, "pull", NAME, *flags, **more)
        assert code == 0 and out.strip() == str(snapshot_of(home)), err
    (folder_of(home) / "blobs" / hub.repositories[NAME].checksum("model.safetensors")).unlink()
    code, _, err = tandem(binary, hub, home, "pull", NAME, "--offline")
    assert code == 1 and "model.safetensors missing" in one_error(err)
    assert hub.requests == []


def test_offline_takes_an_older_version_that_is_whole(binary, hub, home):
    hub.add(NAME, FILES)
    assert tandem(binary, hub, home, "pull", NAME)[0] == 0
    newer = folder_of(home) / "snapshots" / ("b" * 40)
    newer.mkdir()
    (newer / "config.json").write_bytes(FILES["config.json"])  # another tool began it
    (folder_of(home) / "refs" / "main").write_text("b" * 40)
    code, out, err = tandem(binary, hub, home, "pull", NAME, "--offline")
    assert code == 0 and out.strip() == str(snapshot_of(home)), err
    assert "an older version" in err
    assert tandem(binary, hub, home, "pull", NAME + "@v1", "--offline")[0] == 1, "another revision is another model"


def test_a_commit_that_another_tool_began_is_completed(binary, hub, home):
    hub.add(NAME, FILES)
    name = f"{NAME}@{'a' * 40}"
    snapshot = snapshot_of(home)
    snapshot.mkdir(parents=True)
    for file in ("config.json", "tokenizer.json", "model.safetensors"):
        (snapshot / file).write_bytes(FILES[file])
    code, out, err = tandem(binary, hub, home, "pull", name, HF_ENDPOINT="http://127.0.0.1:1")
    assert code == 0 and out.strip() == str(snapshot) and "Using the model of the cache" in err
    code, _, err = tandem(binary, hub, home, "pull", name)
    assert code == 0, err
    assert {path.name for path in snapshot.iterdir()} == NEEDED
    assert not hub.asked("model.safetensors"), "a file that is right is not downloaded again"
    assert not (snapshot / "model.safetensors").is_symlink() and (snapshot / "generation_config.json").is_symlink()
    hub.forget()
    assert tandem(binary, hub, home, "pull", name)[0] == 0 and hub.requests == []


@pytest.mark.parametrize("way", ["html", "damaged", "unsupported"])
def test_a_server_starts_from_the_cache_if_the_new_version_cannot_be_had(binary, hub, home, way):
    hub.add("org/llama", real_files(LLAMA))
    assert tandem(binary, hub, home, "pull", "org/llama")[0] == 0
    hub.add("org/llama", real_files(LLAMA) | {"model.safetensors": WEIGHTS}, commit="b" * 40)
    hub.html = way == "html"
    if way == "damaged":
        hub.served["model.safetensors"] = b"x" * len(WEIGHTS)
    elif way == "unsupported":
        hub.repositories["org/llama"].files["config.json"] = b'{"architectures": ["GPTNeoForCausalLM"]}'
    code, _, err = tandem(binary, hub, home, "serve", "org/llama", "--check")
    assert code == 0 and f"Using the model of the cache, commit {'a' * 40}" in err, err
    code, _, err = tandem(binary, hub, home, "pull", "org/llama")
    assert code != 0 and one_error(err)
    hub.gated = True
    code, _, err = tandem(binary, hub, home, "serve", "org/llama", "--check")
    assert code != 0 and "licence" in one_error(err), "a refusal is not hidden"


def test_a_hub_out_of_reach_is_no_obstacle_to_a_model_that_is_there(binary, hub, home):
    hub.add(NAME, FILES)
    assert tandem(binary, hub, home, "pull", NAME)[0] == 0
    code, out, err = tandem(binary, hub, home, "pull", NAME, HF_ENDPOINT="http://127.0.0.1:1")
    assert code == 0 and out.strip() == str(snapshot_of(home))
    assert "Using the model of the cache" in err


def test_list_shows_what_is_there_and_what_can_be_served(binary, hub, home):
    code, out, _ = tandem(binary, hub, home, "list")
    assert code == 0 and "no models" in out
    hub.add("org/llama", real_files(LLAMA))
    hub.add("org/other", FILES)
    hub.add(NAME, FILES)
    for name in ("org/llama", "org/other", NAME):
        assert tandem(binary, hub, home, "pull", name)[0] == 0
    (folder_of(home) / "blobs" / hub.repositories[NAME].checksum("model.safetensors")).unlink()
    (folder_of(home, "org/other") / "blobs" / git_hash(FILES["config.json"])).write_text('{"architectures": ["GPTNeo\\u001b[2JForCausalLM"]}')
    code, out, _ = tandem(binary, hub, home, "list", HF_ENDPOINT="not an address", HF_HUB_DOWNLOAD_TIMEOUT="x")
    assert code == 0 and "\x1b" not in out
    lines = {line.split()[0]: line for line in out.splitlines()[1:]}
    assert lines["org/llama"].endswith("yes") and "main (aaaaaaaaaaaa)" in lines["org/llama"]
    assert "GPTNeo?[2JForCausalLM" in lines["org/other"]
    assert "incomplete: model.safetensors missing" in lines[NAME]
    models = {model["name"]: model for model in json.loads(tandem(binary, hub, home, "list", "--json")[1])}
    assert models["org/llama"]["servable"] and models["org/llama"]["complete"]
    assert models["org/llama"]["bytes"] == sum(map(len, real_files(LLAMA).values()))
    assert models["org/other"]["complete"] and not models["org/other"]["servable"]
    assert models[NAME]["missing"] == ["model.safetensors"]
