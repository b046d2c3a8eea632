"""Models by name: downloads that break, hubs that refuse or lie. All against mock_hub.py."""
import json
import pathlib
import shutil
import signal
import subprocess

import pytest
from hub_cache import (FILES, LLAMA, NAME, NEEDED, SECRET, WEIGHTS, check_nothing_is_taken_for_whole, check_whole, environment, folder_of, home, hub, one_error, real_files, snapshot_of, tandem)  # noqa: F401
from mock_hub import git_hash, wait_for


def test_pull_fills_the_cache_with_what_a_server_needs(binary, hub, home):
    hub.add(NAME, FILES)
    hub.token = SECRET
    code, out, err = tandem(binary, hub, home, "pull", NAME, HF_TOKEN=SECRET)
    assert code == 0, err
    assert out.strip() == str(snapshot_of(home))
    check_whole(home)
    blobs = {path.name for path in (folder_of(home) / "blobs").iterdir()}
    assert blobs == {hub.repositories[NAME].checksum(name) for name in NEEDED}
    for name in ("README.md", "pytorch_model.bin", "consolidated.safetensors"):
        assert not hub.asked(name)
    hub.forget()
    code, _, err = tandem(binary, hub, home, "pull", NAME, HF_TOKEN=SECRET)
    assert code == 0, err
    assert [path.split("?")[0] for _, _, path, _ in hub.requests] == [f"/api/models/{NAME}/revision/main"], "what is there is not asked for again"


def test_the_token_goes_to_the_hub_alone(binary, hub, home):
    hub.add(NAME, FILES)
    hub.token = SECRET
    home.mkdir()
    (home / "token").write_text(SECRET + "\n")
    code, out, err = tandem(binary, hub, home, "pull", NAME)
    assert code == 0, err
    assert SECRET not in out + err
    told = [(where, headers.get("Authorization")) for where, _, _, headers in hub.requests]
    assert {authorization for where, authorization in told if where == "hub"} == {f"Bearer {SECRET}"}
    assert {authorization for where, authorization in told if where == "cdn"} == {None}


@pytest.mark.parametrize("revision", ["v1", "refs/pr/1", "a" * 40])
def test_revisions_are_kept_as_refs(binary, hub, home, revision):
    hub.add(NAME, FILES)
    code, out, err = tandem(binary, hub, home, "pull", f"{NAME}@{revision}")
    assert code == 0, err
    ref = folder_of(home) / "refs" / revision
    assert not ref.exists() if revision == "a" * 40 else ref.read_text() == "a" * 40
    hub.forget()
    assert tandem(binary, hub, home, "pull", f"{NAME}@{revision}")[0] == 0
    assert (hub.requests == []) == (revision == "a" * 40), "a commit that is there needs no hub"


@pytest.mark.parametrize("way", ["no_blobs", "relative"])
def test_hubs_that_answer_otherwise(binary, hub, home, way):
    hub.add(NAME, FILES)
    hub.blobs = way != "no_blobs"
    hub.relative = way == "relative"
    code, _, err = tandem(binary, hub, home, "pull", NAME)
    assert code == 0, err
    check_whole(home)


def test_a_transfer_that_breaks_goes_on_where_it_ended(binary, hub, home):
    hub.add(NAME, FILES)
    hub.broken["model.safetensors"] = [1 << 20, 1 << 19]
    code, _, err = tandem(binary, hub, home, "pull", NAME)
    assert code == 0, err
    check_whole(home)
    ranges = [headers.get("Range") for headers in hub.asked("model.safetensors", "cdn")]
    assert ranges == [None, f"bytes={1 << 20}-", f"bytes={(1 << 20) + (1 << 19)}-"]
    assert "going on after 1.0 MiB" in err


def test_a_signature_that_ran_out_is_made_anew(binary, hub, home):
    hub.add(NAME, FILES)
    hub.cdn_busy = [403]
    code, _, err = tandem(binary, hub, home, "pull", NAME)
    assert code == 0 and f"status 403 of {hub.cdn}" in err and "licence" not in err, err
    check_whole(home)


def test_a_long_error_is_still_explained(binary, hub, home):
    hub.add(NAME, FILES)
    hub.busy, hub.busy_body = [(418, None)], b"x" * (3 << 20)
    code, _, err = tandem(binary, hub, home, "pull", NAME)
    assert code == 1 and "status 418" in one_error(err)


def test_a_hub_without_ranges_starts_again(binary, hub, home):
    hub.add(NAME, FILES)
    hub.broken["model.safetensors"] = [1 << 20]
    hub.no_ranges = True
    code, _, err = tandem(binary, hub, home, "pull", NAME)
    assert code == 0, err
    check_whole(home)


def test_a_silent_transfer_is_tried_again(binary, hub, home):
    hub.add(NAME, FILES)
    hub.silent["model.safetensors"] = 1
    code, _, err = tandem(binary, hub, home, "pull", NAME, HF_HUB_DOWNLOAD_TIMEOUT="1")
    assert code == 0, err
    check_whole(home)
    assert hub.asked("model.safetensors", "cdn")[1]["Range"] == f"bytes={len(WEIGHTS) // 2}-"


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_second_run_goes_on(binary, hub, home, how):
    hub.add(NAME, FILES)
    hub.pause["model.safetensors"] = 0.1
    process = subprocess.Popen([str(binary), "pull", NAME], env=environment(hub, home), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    incomplete = folder_of(home) / "blobs" / (hub.repositories[NAME].checksum("model.safetensors") + ".incomplete")
    wait_for(lambda: incomplete.exists() and incomplete.stat().st_size > 200_000)
    process.send_signal(how)
    _, err = process.communicate(timeout=30)
    assert process.returncode == (-how if how == signal.SIGKILL else 128 + how), err
    check_nothing_is_taken_for_whole(home)
    had = incomplete.stat().st_size
    hub.pause.clear()
    hub.forget()
    code, _, err = tandem(binary, hub, home, "pull", NAME)
    assert code == 0, err
    check_whole(home)
    assert [headers.get("Range") for headers in hub.asked("model.safetensors", "cdn")] == [f"bytes={had}-"]


@pytest.mark.parametrize("path, size", [("model.safetensors", len(WEIGHTS) - 7), ("model.safetensors", len(WEIGHTS) + 7), ("config.json", 7),
                                        ("config.json", 1 << 40)])
def test_sizes_that_lie_end_it(binary, hub, home, path, size):
    hub.add(NAME, FILES)
    hub.in_list[path] = {"size": size}
    code, _, err = tandem(binary, hub, home, "pull", NAME)
    assert code == 1
    error = one_error(err)
    assert path in error and "bytes" in error or "needs" in error
    check_nothing_is_taken_for_whole(home)


def test_a_file_that_changes_ends_it(binary, hub, home):
    hub.add(NAME, FILES)
    hub.headers["config.json"] = {"X-Linked-Etag": f'"{git_hash(b"other")}"'}
    code, _, err = tandem(binary, hub, home, "pull", NAME)
    assert code == 1 and "config.json" in one_error(err) and "the model changed" in err
    check_nothing_is_taken_for_whole(home)
    hub.headers["config.json"] = {"X-Repo-Commit": "b" * 40}
    code, _, err = tandem(binary, hub, home, "pull", NAME)
    assert code == 1 and "the model changed" in one_error(err)
    hub.headers["config.json"] = {"ETag": f'"{git_hash(b"mark of a proxy")}"'}  # says nothing of the content
    code, _, err = tandem(binary, hub, home, "pull", NAME)
    assert code == 0, err
    check_whole(home)


@pytest.mark.parametrize("path", ["model.safetensors", "tokenizer.json"])
def test_damaged_bytes_are_found(binary, hub, home, path):
    hub.add(NAME, FILES)
    hub.served[path] = bytes([FILES[path][0] ^ 1]) + FILES[path][1:]
    code, _, err = tandem(binary, hub, home, "pull", NAME)
    assert code == 1 and "checksum" in one_error(err) and path in err
    check_nothing_is_taken_for_whole(home)
    hub.served.clear()
    code, _, err = tandem(binary, hub, home, "pull", NAME)
    assert code == 0, err
    check_whole(home)


def test_refusals_say_what_to_do(binary, hub, home):
    hub.add(NAME, FILES)
    code, _, err = tandem(binary, hub, home, "pull", "org/none")
    assert code == 1 and "no model 'org/none'" in one_error(err)
    code, _, err = tandem(binary, hub, home, "pull", f"{NAME}@v9")
    assert code == 1 and "no revision 'v9'" in one_error(err)
    hub.token = SECRET
    code, _, err = tandem(binary, hub, home, "pull", NAME)
    assert code == 1 and "set HF_TOKEN" in one_error(err)
    code, _, err = tandem(binary, hub, home, "pull", NAME, HF_TOKEN="hf_wrong")
    assert code == 1 and "HF_TOKEN is valid" in one_error(err) and "hf_wrong" not in err
    hub.gated = True
    code, _, err = tandem(binary, hub, home, "pull", NAME, HF_TOKEN=SECRET)
    error = one_error(err)
    assert code == 1 and "licence" in error and f"{hub.url}/{NAME}" in error and "Access to this model is restricted." in error
    assert not home.exists()


def test_a_busy_hub_is_asked_again_within_bounds(binary, hub, home):
    hub.add(NAME, FILES)
    hub.busy = [(503, "1"), (429, "0"), (500, None)]
    code, _, err = tandem(binary, hub, home, "pull", NAME)
    assert code == 0, err
    assert err.count("trying again") + err.count("going on") == 3
    check_whole(home)
    hub.busy = [(429, "3600")]
    code, _, err = tandem(binary, hub, home, "pull", NAME + "@v1")
    assert code == 0 or "429" in one_error(err)
    shutil.rmtree(home)
    hub.busy = [(429, "3600")]
    code, _, err = tandem(binary, hub, home, "pull", NAME)
    assert code == 1 and "status 429" in one_error(err)


@pytest.fixture
def no_libcurl(tmp_path):
    """Variables with which no libcurl can be loaded."""
    for name in ("libcurl.so.4", "libcurl-gnutls.so.4"):
        (tmp_path / name).write_text("no library\n")
    return {"LD_LIBRARY_PATH": str(tmp_path)}


@pytest.mark.parametrize("arguments", [("pull", NAME), ("chat",), ("serve", NAME)])
def test_without_libcurl_requests_fail(binary, hub, home, no_libcurl, arguments):
    hub.add(NAME, FILES)
    code, _, err = tandem(binary, hub, home, *arguments, **no_libcurl)
    assert code == 1 and "need libcurl" in err and "libcurl.so.4: file too short" in err and "install it" in err
    assert not hub.requests


def test_a_model_in_the_cache_needs_no_libcurl(binary, hub, home, no_libcurl):
    hub.add(NAME, FILES)
    assert tandem(binary, hub, home, "pull", NAME)[0] == 0
    hub.forget()
    for arguments, noted in ((("list",), False), (("pull", NAME, "--offline"), False), (("pull", NAME), True)):
        code, _, err = tandem(binary, hub, home, *arguments, **no_libcurl)
        assert code == 0 and ("need libcurl" in err and "Using the model of the cache" in err) == noted, err
    assert not hub.requests


@pytest.mark.parametrize("name", ["../../../evil", "/etc/evil", "a/../../evil", "evil\0x", "evil\nx", "a\\b"])
def test_names_that_leave_the_folder_are_refused(binary, hub, home, name):
    hub.add(NAME, FILES)
    hub.more_names = [name]
    code, _, err = tandem(binary, hub, home, "pull", NAME)
    assert code == 1 and "below a folder" in one_error(err)
    assert not home.exists() and not hub.asked("config.json")


def test_names_of_models_are_checked(binary, hub, home):
    for name in ("org", "org/a/b", "../x", "org/..", "org/x@../y", "org/x:../y.gguf", "org/x:y.bin"):
        code, _, err = tandem(binary, hub, home, "pull", name)
        assert code == 2 and "is not a model's name" in one_error(err), name
    assert hub.requests == []


def test_what_cannot_be_served_ends_before_the_weights(binary, hub, home):
    hub.add("org/neo", FILES | {"config.json": b'{"architectures": ["GPTNeoForCausalLM"]}'})
    code, _, err = tandem(binary, hub, home, "pull", "org/neo")
    assert code == 2 and "'GPTNeoForCausalLM' is not supported" in one_error(err)
    index = {"weight_map": {"a": "x.safetensors", "b": "y.safetensors"}}
    shards = {name: data for name, data in FILES.items() if name != "model.safetensors"} | {
        "model.safetensors.index.json": json.dumps(index).encode(), "x.safetensors": b"x"}
    hub.add("org/shards", shards)
    code, _, err = tandem(binary, hub, home, "pull", "org/shards")
    assert code == 2 and "names 'y.safetensors', which the repository lacks" in one_error(err)
    assert not [path for _, _, path, _ in hub.requests if ".safetensors?" in path or path.endswith(".safetensors")]
    hub.add("org/shards", shards | {"y.safetensors": b"yy"})
    code, out, err = tandem(binary, hub, home, "pull", "org/shards")
    assert code == 0 and (pathlib.Path(out.strip()) / "y.safetensors").read_bytes() == b"yy", err


def test_what_cannot_be_served_is_not_downloaded(binary, hub, home):
    hub.add("org/torch", {"config.json": b"{}", "pytorch_model.bin": b"x"})
    hub.add("org/quantised-GGUF", {"m-Q8_0.gguf": b"GGUF", "m-Q4_0.gguf": b"GGUF"})
    code, _, err = tandem(binary, hub, home, "pull", "org/torch")
    assert code == 2 and "PyTorch files are not read" in one_error(err)
    code, _, err = tandem(binary, hub, home, "pull", "org/quantised-GGUF")
    assert code == 2 and "org/quantised-GGUF:m-Q4_0.gguf" in one_error(err)
    code, out, err = tandem(binary, hub, home, "pull", "org/quantised-GGUF:m-Q8_0.gguf")
    assert code == 0 and pathlib.Path(out.strip()).read_bytes() == b"GGUF", err
    assert not hub.asked("m-Q4_0.gguf")


def text_of(server):
    client = server.openai()
    return client.completions.create(model=client.models.list().data[0].id, prompt=[7, 11, 19], max_tokens=8, temperature=0).choices[0].text


def test_a_model_is_served_by_its_name(start_server, binary, hub, home):
    hub.add("org/llama", real_files(LLAMA))
    wanted = text_of(start_server(LLAMA))
    server = start_server("org/llama", env=environment(hub, home))
    assert server.model_name() == "org/llama"
    assert text_of(server) == wanted
    hub.forget()
    server = start_server("org/llama", "--offline", "--served-model-name", "mine", env=environment(hub, home))
    assert server.model_name() == "mine" and text_of(server) == wanted
    assert hub.requests == []


def test_a_folder_of_that_name_wins(binary, hub, home, tmp_path):
    hub.add("org/llama", real_files(LLAMA))
    shutil.copytree(LLAMA, tmp_path / "org" / "llama")
    code, _, err = tandem(binary, hub, home, "serve", "org/llama", "--check", cwd=tmp_path)
    assert code == 0, err
    assert hub.requests == []


def test_serve_says_when_a_name_is_neither_folder_nor_model(binary, hub, home):
    code, _, err = tandem(binary, hub, home, "serve", "org/none")
    error = one_error(err)
    assert code == 1 and "no file or folder 'org/none'" in error and "no model 'org/none'" in error
    code, _, err = tandem(binary, hub, home, "serve", "org/x@..")
    assert code == 2 and "no file or folder" in one_error(err)
