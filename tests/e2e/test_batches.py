"""Files and batches over HTTP, as OpenAI's client uses them: uploads, runs, keys, quotas, kills and restarts."""
import collections
import json
import os
import random
import signal
import socket
import time

import openai
import pytest
from batch_requests import LLAMA, SECONDS, chat, jsonl, upload, begin, ended, lines_of, serve
from conftest import launch
from server import until


ORDERS = {"first come": (), "by prefixes": ("--policy", "sarathi_pp", "--psm-utility", 90)}


@pytest.fixture(scope="module")
def kept(binary, tmp_path_factory):
    """One server with files for the tests that leave room for each other."""
    server = launch(binary, "batches", LLAMA, "--served-model-name", "golden", "--dtype", "float32", "--data-folder",
                    tmp_path_factory.mktemp("batches") / "data")
    yield server
    server.stop_cleanly()


@pytest.mark.core
def test_a_batch_is_answered_as_its_lines_would_be(kept):
    client = kept.openai()
    lines = [chat("a", "Tell me"), chat("b", "more"), chat("cold", temperature=-1)]
    file = upload(client, lines, "questions.jsonl")
    assert (file.object, file.purpose, file.filename, file.status) == ("file", "batch", "questions.jsonl", "processed")
    assert file.bytes == len(jsonl(lines))
    assert client.files.retrieve(file.id) == file
    assert client.files.content(file.id).read() == jsonl(lines)
    batch = begin(client, file, metadata={"job": "nightly"})
    assert batch.object == "batch" and batch.status == "validating" and batch.input_file_id == file.id
    assert batch.endpoint == "/v1/chat/completions" and batch.completion_window == "24h"
    assert batch.expires_at - batch.created_at == 24 * 3600
    end = ended(client, batch)
    assert end.status == "completed" and end.metadata == {"job": "nightly"} and end.errors is None
    assert (end.request_counts.total, end.request_counts.completed, end.request_counts.failed) == (3, 2, 1)
    assert batch.created_at <= end.in_progress_at <= end.finalizing_at <= end.completed_at
    answers = {line["custom_id"]: line for line in lines_of(client, end.output_file_id)}
    assert set(answers) == {"a", "b"}
    for line in lines[:2]:
        theirs = client.chat.completions.create(**line["body"])
        ours = answers[line["custom_id"]]
        assert ours["error"] is None and ours["response"]["status_code"] == 200
        assert ours["response"]["body"]["choices"][0]["message"]["content"] == theirs.choices[0].message.content
        assert ours["response"]["body"]["service_tier"] == "flex"
    (failed,) = lines_of(client, end.error_file_id)
    assert failed["custom_id"] == "cold" and failed["response"]["status_code"] == 400
    written = client.files.retrieve(end.output_file_id)
    assert written.purpose == "batch_output" and written.bytes > 0
    assert kept.metric("tandem_batches", state="completed") >= 1
    assert kept.metric("tandem_batch_lines_total", outcome="completed") >= 2
    assert kept.metric("tandem_batch_storage_used_bytes") >= file.bytes


def test_without_a_newline_at_the_end_and_with_blank_lines_all_lines_count(kept):
    client = kept.openai()
    text = b"\n" + jsonl([chat("one")]) + b"\r\n\n" + jsonl([chat("two")]).rstrip(b"\n")
    end = ended(client, begin(client, upload(client, text)))
    assert end.status == "completed" and end.request_counts.completed == 2 and end.error_file_id is None


@pytest.mark.parametrize("lines, faults", [
    ([chat("a"), chat("a")], [("duplicate_custom_id", 2)]),
    ([chat("a"), "no json", chat("b")], [("invalid_json", 2)]),
    ([{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "x"}}], [("mismatched_endpoint", 1)]),
    ([{"custom_id": "a", "method": "POST", "url": "/v1/embeddings", "body": {}}], [("invalid_url", 1)]),
    ([chat("a", model="gpt-4o"), chat("b")], [("model_not_found", 1)]),
    ([{"method": "POST", "url": "/v1/chat/completions", "body": {}}], [("invalid_custom_id", 1)]),
    (b"\n\n", [("empty_file", None)]),
])
def test_a_batch_whose_lines_cannot_be_told_apart_or_sent_fails_before_it_begins(kept, lines, faults):
    client = kept.openai()
    end = ended(client, begin(client, upload(client, lines)))
    assert end.status == "failed" and end.failed_at and end.output_file_id is None
    assert [(fault.code, fault.line) for fault in end.errors.data] == faults
    assert all(fault.message for fault in end.errors.data)


def test_lists_go_on_behind_an_object(kept):
    client = kept.openai()
    file = upload(client, [chat("a")])
    made = [begin(client, file).id for _ in range(5)]
    page = client.batches.list(limit=2)
    assert [batch.id for batch in page.data] == made[:2:-1] and page.has_more
    behind = client.batches.list(limit=2, after=page.data[-1].id)
    assert [batch.id for batch in behind.data] == made[2:0:-1]
    seen = [batch.id for batch in client.batches.list(limit=3)]
    assert seen[:5] == made[::-1] and len(seen) == len(set(seen))
    assert file.id in [each.id for each in client.files.list(purpose="batch", limit=1)]
    for batch in made:  # each adds a file of answers to the list
        ended(client, client.batches.retrieve(batch))
    oldest = client.files.list(order="asc").data
    assert [each.id for each in client.files.list(order="desc").data] == [each.id for each in oldest][::-1]
    listed = client.batches.list(limit=100, extra_query={"order": "asc"}).data
    assert [batch.id for batch in listed if batch.id in made] == made
    for wrong in ({"limit": 0}, {"limit": 101}, {"after": "batch_none"}):
        with pytest.raises(openai.BadRequestError):
            client.batches.list(**wrong)


def test_files_are_deleted_while_they_are_listed(serve):
    client = serve().openai()
    for i in range(7):
        upload(client, [chat(str(i))])
    assert sum(client.files.delete(file.id).deleted for file in client.files.list(limit=2)) == 7
    assert client.files.list().data == []


def test_a_long_batch_of_one_key_delays_no_other_key(serve, tmp_path):
    (tmp_path / "keys").write_text("sk-one\nsk-two\n")
    server = serve("--api-key-file", tmp_path / "keys", "--max-num-seqs", 1)
    one, two = server.openai("sk-one"), server.openai("sk-two")
    long = upload(one, [chat(str(i), max_tokens=200, ignore_eos=True) for i in range(3000)])
    batches = [begin(one, long) for _ in range(5)]
    assert until(lambda: one.batches.retrieve(batches[0].id).request_counts.completed > 0, SECONDS)
    assert ended(two, begin(two, upload(two, [chat("a")]))).status == "completed"
    assert [one.batches.retrieve(batch.id).status for batch in batches] == ["in_progress"] * 5
    assert one.batches.cancel(batches[4].id).status == "cancelling"
    assert ended(one, batches[4]).status == "cancelled"
    server.stop_cleanly()


def test_what_is_wrong_is_refused_by_name(kept):
    client = kept.openai()
    file = upload(client, [chat("a")])
    for fields, param in [({"endpoint": "/v1/embeddings"}, "endpoint"), ({"window": "8d"}, "completion_window"),
                          ({"window": "30m"}, "completion_window"), ({"metadata": {"k": "v" * 513}}, "metadata")]:
        with pytest.raises(openai.BadRequestError) as caught:
            begin(client, file, **fields)
        assert caught.value.param == param
    assert begin(client, file, window="1h").expires_at
    for wrong in ("fine-tune", "assistants"):
        with pytest.raises(openai.BadRequestError) as caught:
            client.files.create(file=("x.jsonl", b"{}\n"), purpose=wrong)
        assert caught.value.param == "purpose"
    with pytest.raises(openai.BadRequestError):
        upload(client, b"")
    for ask in (client.files.retrieve, client.files.delete, client.files.content, client.batches.retrieve, client.batches.cancel):
        with pytest.raises(openai.NotFoundError):
            ask("file-none")
    with kept.http() as http:
        assert http.post("/v1/files", json={}).status_code == 400
        assert http.post("/v1/files", files={"file": ("x", b"{}\n")}).json()["error"]["param"] == "purpose"
        assert http.put("/v1/files").status_code == 405


def test_a_truncated_upload_leaves_nothing(kept):
    client = kept.openai()
    before = [file.id for file in client.files.list()]
    body = (b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
            b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n{"custom_id"')
    head = f"POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: {{}}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", kept.port)) as link:  # whole by its length, without its end
        link.sendall(head.format(len(body)).encode() + body)
        assert b"cut off" in link.recv(65536)
    with socket.create_connection(("127.0.0.1", kept.port)) as link:  # the client goes away in the middle
        link.sendall(head.format(10 ** 6).encode() + body)
    assert [file.id for file in client.files.list()] == before


def test_a_large_file_comes_and_goes_without_being_held_in_memory(kept):
    client = kept.openai()
    upload(client, [chat("warm")])
    before = kept.resident_bytes()
    data = os.urandom(1 << 20).hex().encode() * 40  # 80 MB
    file = upload(client, data)
    assert file.bytes == len(data)
    with client.files.with_streaming_response.content(file.id) as response:
        got = sum(len(piece) for piece in response.iter_bytes())
    assert got == len(data)
    assert kept.resident_bytes() - before < 24 << 20
    assert client.files.delete(file.id).deleted


def test_a_key_sees_its_own_files_and_batches_only(serve, tmp_path):
    (tmp_path / "keys").write_text("sk-one\nsk-two\n")
    server = serve("--api-key-file", tmp_path / "keys")
    one, two = server.openai("sk-one"), server.openai("sk-two")
    file = upload(one, [chat("a")])
    batch = begin(one, file)
    end = ended(one, batch)
    assert end.status == "completed"
    assert two.files.list().data == [] and two.batches.list().data == []
    for ask in (lambda: two.files.retrieve(file.id), lambda: two.files.content(end.output_file_id), lambda: two.files.delete(file.id),
                lambda: two.batches.retrieve(batch.id), lambda: two.batches.cancel(batch.id), lambda: begin(two, file)):
        with pytest.raises(openai.NotFoundError):
            ask()
    with pytest.raises(openai.AuthenticationError):
        server.openai("sk-three").files.list()
    server.stop_cleanly()
    (tmp_path / "keys").write_text("sk-two\nsk-one\n")  # whose they are does not depend on the order of the keys
    again = serve("--api-key-file", tmp_path / "keys")
    assert again.openai("sk-one").files.retrieve(file.id) == file
    assert again.openai("sk-two").files.list().data == []


def test_a_batch_stops_when_its_key_is_taken_away_and_goes_on_when_it_is_back(serve, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-one\nsk-two\n")
    server = serve("--api-key-file", keys, "--max-num-seqs", 1)
    one, two = server.openai("sk-one"), server.openai("sk-two")
    batch = begin(one, upload(one, [chat(str(i), max_tokens=100, ignore_eos=True) for i in range(200)]))
    assert until(lambda: one.batches.retrieve(batch.id).request_counts.completed > 0, SECONDS)

    def read_keys(text):
        reloads = server.log_tail(10 ** 6).count("SIGHUP: ")
        keys.write_text(text)
        server.process.send_signal(signal.SIGHUP)
        assert until(lambda: server.log_tail(10 ** 6).count("SIGHUP: ") > reloads, SECONDS)

    def batches_paused():
        with server.http(headers={"Authorization": "Bearer sk-two"}) as http:
            return "\ntandem_batches_paused 1\n" in http.get("/metrics").text

    read_keys("sk-two\n")
    with pytest.raises(openai.AuthenticationError):
        one.batches.retrieve(batch.id)
    assert until(batches_paused, SECONDS)
    assert f"batch {batch.id} waits: the API key" in server.log_tail(10 ** 6)
    assert two.chat.completions.create(**chat("")["body"]).choices
    read_keys("sk-two\nsk-one\n")
    end = ended(one, batch)
    assert end.status == "completed" and end.request_counts.completed == 200
    assert len({line["custom_id"] for line in lines_of(one, end.output_file_id)}) == 200


def test_a_file_deleted_while_its_batch_runs_makes_no_difference(kept):
    client = kept.openai()
    file = upload(client, [chat(str(i), max_tokens=100, ignore_eos=True) for i in range(300)])
    batch = begin(client, file)
    assert client.files.delete(file.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(file.id)
    end = ended(client, batch)
    assert end.status == "completed" and end.request_counts.completed == 300


def test_a_cancelled_batch_keeps_what_it_has(serve):
    server = serve("--max-num-seqs", 2)
    client = server.openai()
    count = 400
    batch = begin(client, upload(client, [chat(str(i), max_tokens=200, ignore_eos=True) for i in range(count)]))
    assert until(lambda: client.batches.retrieve(batch.id).request_counts.completed > 0, SECONDS)
    running = client.batches.retrieve(batch.id)
    assert running.status == "in_progress" and running.model_extra["tandem"]["estimated_completion_at"] > running.created_at
    assert client.batches.cancel(batch.id).status in ("cancelling", "cancelled")
    end = ended(client, batch)
    assert end.status == "cancelled" and end.cancelled_at >= end.cancelling_at
    answers = lines_of(client, end.output_file_id)
    assert 0 < len(answers) == end.request_counts.completed < count == end.request_counts.total
    assert client.batches.cancel(batch.id).status == "cancelled"
    assert until(server.is_idle, SECONDS)
    done = ended(client, begin(client, upload(client, [chat("a")])))
    with pytest.raises(openai.BadRequestError):
        client.batches.cancel(done.id)


@pytest.mark.parametrize("order", ORDERS)
def test_a_batch_survives_kills_without_a_line_lost_or_doubled(serve, order):
    """At random moments, also of the start; TANDEM_BATCH_LINES and TANDEM_BATCH_KILLS for longer runs."""
    count, kills = int(os.environ.get("TANDEM_BATCH_LINES", 2000)), int(os.environ.get("TANDEM_BATCH_KILLS", 5))
    random.seed(24)
    slow = ("--max-num-seqs", 8, *ORDERS[order])
    server = serve(*slow)
    client = server.openai()
    batch = begin(client, upload(client, [chat(str(i), f"line {i}", max_tokens=60, ignore_eos=True) for i in range(count)]))
    caught = 0  # kills while the batch had not ended
    for _ in range(kills):
        time.sleep(random.random() * 0.8)
        before = client.batches.retrieve(batch.id)
        server.process.send_signal(signal.SIGKILL)
        server.stop()
        server = serve(*slow)
        client = server.openai()
        caught += before.status != "completed"
        assert until(lambda: client.batches.retrieve(batch.id).request_counts.completed >= before.request_counts.completed, SECONDS)
    print(f"{caught} kills while the batch ran, the last after {before.request_counts.completed} of {count} lines")
    assert caught >= 2
    end = ended(client, batch, 900)
    assert end.status == "completed"
    assert (end.request_counts.total, end.request_counts.completed, end.request_counts.failed) == (count, count, 0)
    answered = collections.Counter(line["custom_id"] for line in lines_of(client, end.output_file_id))
    assert answered == {str(i): 1 for i in range(count)}
    server.stop_cleanly()
    client = serve().openai()
    assert client.batches.retrieve(batch.id) == end and len(lines_of(client, end.output_file_id)) == count


@pytest.mark.parametrize("order", ORDERS)
def test_a_batch_is_fed_line_by_line(serve, order):
    """Memory does not grow with the file's text: TANDEM_BATCH_LINES=50000 for the figures in docs/batches.md."""
    count = int(os.environ.get("TANDEM_BATCH_LINES", 2000))
    server = serve(*ORDERS[order])
    client = server.openai()
    ended(client, begin(client, upload(client, [chat(str(i)) for i in range(100)])))
    before, answered = server.resident_bytes(), server.metric("tandem_generation_tokens_total")
    began = time.monotonic()
    batch = begin(client, upload(client, [chat(str(i), "word " * 40 + str(i), max_tokens=1) for i in range(count)]))
    peak, checked, first = before, None, None
    while (status := client.batches.retrieve(batch.id).status) not in ("completed", "failed"):
        peak = max(peak, server.resident_bytes())
        checked = checked or (time.monotonic() if status == "in_progress" else None)
        if not first and server.metric("tandem_generation_tokens_total") > answered:
            first = time.monotonic()
        time.sleep(0.02)
    print(f"{order}: {count} lines in {time.monotonic() - began:.1f} s, memory grew by {(peak - before) / 2 ** 20:.1f} MiB",
          f"first token {first - checked:.2f} s after the check" if first and checked else "")
    assert client.batches.retrieve(batch.id).request_counts.completed == count
    assert peak - before < 200e6


def shared_prefixes(prefixes, each):
    """Lines of which each begins as `each` of them do, line by line with another beginning."""
    beginnings = ["".join(random.Random(i).choices("abcdefghijklmnopqrstuvwxyz ", k=160)) for i in range(prefixes)]
    return [chat(str(i), f"{beginnings[i % prefixes]} {i}", max_tokens=8, ignore_eos=True) for i in range(prefixes * each)]


def test_lines_are_submitted_in_the_order_of_the_policy(serve):
    """An interleaved file, and KV blocks for a few prefixes: in the order of prefixes its lines find them in the cache."""
    lines = shared_prefixes(64, 8)
    hits = {}
    for name, flags in {"fcfs": (), "psm": ("--psm-utility", 100)}.items():
        server = serve("--policy", "sarathi_pp", "--max-num-seqs", 4, "--block-size", 16, "--num-kv-blocks", 128, *flags, folder=name)
        client = server.openai()
        end = ended(client, begin(client, upload(client, lines)))
        assert (end.status, end.request_counts.completed) == ("completed", len(lines))
        hits[name] = server.metric("vllm:prefix_cache_hits_total") / server.metric("vllm:prefix_cache_queries_total")
    print({name: f"{share:.1%} of the prompt tokens were cached" for name, share in hits.items()})
    assert hits["psm"] > 0.4 > 4 * hits["fcfs"]


def test_a_cancellation_goes_on_after_a_kill(serve, tmp_path):
    server = serve("--max-num-seqs", 1)
    client = server.openai()
    batch = begin(client, upload(client, [chat(str(i), max_tokens=200, ignore_eos=True) for i in range(400)]))
    assert until(lambda: client.batches.retrieve(batch.id).status == "in_progress", SECONDS)
    client.batches.cancel(batch.id)
    server.process.send_signal(signal.SIGKILL)
    server.stop()
    client = serve().openai()
    end = ended(client, batch)
    assert end.status == "cancelled"
    assert end.request_counts.completed == len(lines_of(client, end.output_file_id)) < 400
    assert list((tmp_path / "data" / "batches").iterdir()) == []


def test_without_a_data_folder_the_routes_name_the_flag(server):
    client = server.openai()
    for ask in (lambda: client.files.list(), lambda: upload(client, b"x"), lambda: client.batches.list(),
                lambda: client.batches.retrieve("batch_x")):
        with pytest.raises(openai.NotFoundError) as caught:
            ask()
        assert "--data-folder" in str(caught.value)
