"""`tandem batch run`: files of requests without a server, killed and continued."""
import contextlib
import json
import os
import pathlib
import random
import signal
import subprocess

import pytest
from server import until

LLAMA = pathlib.Path(__file__).resolve().parent.parent / "goldens" / "llama-gqa-rope3-f32"


def chat(custom_id, content="Hi", **fields):
    body = {"model": "golden", "messages": [{"role": "user", "content": content}], "max_tokens": 8, "temperature": 0} | fields
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body}


def completion(custom_id, prompt="Hello", **fields):
    body = {"model": "golden", "prompt": prompt, "max_tokens": 8, "temperature": 0, "ignore_eos": True} | fields
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/completions", "body": body}


def write(path, lines):
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))


def command(binary, folder, *flags, model=LLAMA):
    return [str(binary), "batch", "run", str(folder / "in.jsonl"), "-o", str(folder / "out.jsonl"), "--model", str(model),
            "--served-model-name", "golden", *map(str, flags)]


def run(binary, folder, *flags, model=LLAMA, seconds=300):
    done = subprocess.run(command(binary, folder, *flags, model=model), capture_output=True, text=True, timeout=seconds,
                          stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout + done.stderr


def answers(folder):
    """{custom_id: answer}; every line must be whole and every custom_id there once."""
    text = (folder / "out.jsonl").read_text()
    assert text == "" or text.endswith("\n")
    lines = [json.loads(line) for line in text.splitlines()]
    found = {line["custom_id"]: line for line in lines}
    assert len(found) == len(lines)
    return found


def text_of(answer):
    choice = answer["response"]["body"]["choices"][0]
    return choice["text"] if "text" in choice else choice["message"]["content"]


@pytest.mark.core
def test_answers_are_those_of_the_server(binary, tmp_path, server):
    lines = [chat("c", "Tell me"), completion("p", "Once upon"), completion("two", ["a", "b"], n=1)]
    write(tmp_path / "in.jsonl", lines)
    code, log = run(binary, tmp_path, "--dtype", "float32")
    assert code == 0, log
    assert "3 of 3 lines" in log
    found = answers(tmp_path)
    with server.http() as http:
        for line in lines:
            theirs = http.post(line["url"], json=line["body"]).json()
            ours = found[line["custom_id"]]
            assert ours["error"] is None and ours["response"]["status_code"] == 200
            assert ours["response"]["body"]["choices"] == theirs["choices"]
            assert ours["response"]["body"]["usage"]["total_tokens"] == theirs["usage"]["total_tokens"]


def test_bad_lines_are_error_lines_and_the_rest_is_answered(binary, tmp_path):
    lines = ["not json", chat("good"), chat("good", "again"), chat("gone", model="gpt-4o"), chat("cold", temperature=-1),
             chat("long", "x " * 5000), {"custom_id": "url", "url": "/v1/embeddings", "body": {}}, "", "[" * 100000,
             chat("streams", stream=True), completion("last")]
    write(tmp_path / "in.jsonl", lines)
    code, log = run(binary, tmp_path)
    assert code == 0, log
    out = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(out) == 10  # the blank line is none
    by_line = {int(line["id"].split("_")[2]): line for line in out}
    codes = {number: line["error"] and line["error"]["code"] for number, line in by_line.items()}
    assert codes[1] == codes[9] == "invalid_json"
    assert codes[3] == "duplicate_custom_id" and by_line[3]["custom_id"] == "good"
    assert codes[7] == "invalid_url" and codes[10] == "invalid_body"
    assert {number: line["response"]["status_code"] for number, line in by_line.items() if line["response"]} == {
        2: 200, 4: 404, 5: 400, 6: 400, 11: 200}
    assert by_line[5]["response"]["body"]["error"]["param"] == "temperature"
    assert by_line[6]["response"]["body"]["error"]["code"] == "context_length_exceeded"


def test_killed_at_any_moment_it_goes_on_without_losing_or_doubling_a_line(binary, tmp_path):
    lines = [completion(f"line-{i}", f"Number {i}", max_tokens=1 + i % 40) for i in range(300)]
    whole = tmp_path / "whole"
    whole.mkdir()
    write(whole / "in.jsonl", lines)
    code, log = run(binary, whole)
    assert code == 0, log
    write(tmp_path / "in.jsonl", lines)
    out = tmp_path / "out.jsonl"
    draw = random.Random(5)
    kills = 0
    for attempt in range(60):
        process = subprocess.Popen(command(binary, tmp_path, "--max-num-seqs", 4), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        had = out.stat().st_size if out.exists() else 0
        more = draw.randrange(1, 20000)
        until(lambda: process.poll() is not None or (out.exists() and out.stat().st_size >= had + more), seconds=60, every=0.0005)
        process.kill()
        code = process.wait()
        kills += code == -signal.SIGKILL
        with open(out, "ab") as file:  # half a line, as a machine that lost power may leave it
            if code != 0 and attempt % 2:
                file.write(b'{"id":"batch_req_7_00')
        if code == 0:
            break
    code, log = run(binary, tmp_path)
    assert code == 0, log
    assert kills >= 3
    expected, found = answers(whole), answers(tmp_path)
    assert found.keys() == expected.keys() == {line["custom_id"] for line in lines}
    for name, answer in found.items():
        assert text_of(answer) == text_of(expected[name])
    size = out.stat().st_size
    code, log = run(binary, tmp_path)
    assert code == 0 and "all 300 lines" in log
    assert out.stat().st_size == size


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM], ids=lambda sign: sign.name)
def test_a_signal_stops_cleanly_and_says_how_to_go_on(binary, tmp_path, long_model, sign):
    write(tmp_path / "in.jsonl", [completion("short", max_tokens=2)] + [completion(f"long-{i}", max_tokens=12000) for i in range(4)])
    process = subprocess.Popen(command(binary, tmp_path, model=long_model), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True)
    out = tmp_path / "out.jsonl"
    assert until(lambda: out.exists() and out.stat().st_size > 0, seconds=60)
    process.send_signal(sign)
    log = process.communicate(timeout=60)[0]
    assert process.returncode == 130, log
    assert "same command" in log
    assert "short" in answers(tmp_path) and len(answers(tmp_path)) < 5


def test_an_output_of_something_else_is_left_untouched(binary, tmp_path):
    write(tmp_path / "in.jsonl", [chat("a")])
    (tmp_path / "out.jsonl").write_text("precious\n")
    code, log = run(binary, tmp_path)
    assert code == 2 and "another output" in log
    assert (tmp_path / "out.jsonl").read_text() == "precious\n"
    code, log = run(binary, tmp_path, "-o", tmp_path / "in.jsonl")
    assert code == 2
    for missing in ("none.jsonl", "."):
        done = subprocess.run([str(binary), "batch", "run", str(tmp_path / missing), "-o", str(tmp_path / "new"), "--model", str(LLAMA)],
                              capture_output=True, text=True, timeout=60)
        assert done.returncode in (1, 2) and missing in done.stderr
        assert not (tmp_path / "new").exists()


@contextlib.contextmanager
def small_disk(folder, size_bytes):
    folder.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", folder],
                                           capture_output=True).returncode != 0:
        pytest.skip("cannot mount a small disk here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_ends_the_run_and_room_continues_it(binary, tmp_path):
    with small_disk(tmp_path / "disk", 64 << 10) as disk:
        write(tmp_path / "in.jsonl", [completion(f"line-{i}", max_tokens=2) for i in range(400)])
        arguments = ("-o", disk / "out.jsonl")
        code, log = run(binary, tmp_path, *arguments)
        assert code == 1 and "No space left" in log and "same command" in log
        done = (disk / "out.jsonl").read_text()
        assert done.endswith("\n")
        subprocess.run(["mount", "-o", f"remount,size={4 << 20}", disk], check=True)
        code, log = run(binary, tmp_path, *arguments)
        assert code == 0, log
        assert (disk / "out.jsonl").read_text().startswith(done)
        ids = [json.loads(line)["custom_id"] for line in (disk / "out.jsonl").read_text().splitlines()]
        assert sorted(ids) == sorted(f"line-{i}" for i in range(400))
