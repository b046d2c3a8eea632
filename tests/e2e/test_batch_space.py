"""Files and batches over HTTP: quotas, full disks, damaged databases, folders in use."""
import collections
import errno
import pathlib
import resource
import sqlite3
import subprocess

import openai
import pytest
from batch_requests import LLAMA, SECONDS, chat, upload, begin, ended, lines_of, serve
from server import until


def test_space_is_bounded(serve):
    server = serve("--batch-storage", "100KB", "--batch-file-size", "60KB", "--batch-file-lines", 3)
    client = server.openai()
    first = upload(client, b"x" * 60_000)
    with pytest.raises(openai.APIStatusError) as caught:
        upload(client, b"x" * 60_001)
    assert caught.value.status_code == 413 and "--batch-file-size" in str(caught.value)
    with pytest.raises(openai.APIStatusError) as caught:
        upload(client, b"x" * 50_000)
    assert caught.value.status_code == 413 and "--batch-storage" in str(caught.value)
    with pytest.raises(openai.APIStatusError) as caught:
        upload(client, b"x" * 5_000_000)
    assert caught.value.status_code == 413
    client.files.delete(first.id)
    many = upload(client, [chat(str(i)) for i in range(4)])
    assert ended(client, begin(client, many)).errors.data[0].code == "too_many_lines"
    assert server.metric("tandem_batch_storage_limit_bytes") == 100_000


def test_a_batch_waits_for_space_and_says_so(serve):
    server = serve("--batch-storage", "200KB", "--batch-file-size", "200KB", "--max-num-seqs", 1)  # with more, all lines may be answered before a full space is noticed
    client = server.openai()
    file = upload(client, [chat(str(i), max_tokens=2) for i in range(200)])
    ballast = upload(client, b"x" * (200_000 - file.bytes - 2_000))
    batch = begin(client, file)
    paused = until(lambda: client.batches.retrieve(batch.id).model_extra["tandem"]["paused"], SECONDS)
    assert "--batch-storage" in paused and client.batches.retrieve(batch.id).status == "in_progress"
    assert server.metric("tandem_batches_paused") == 1
    client.files.delete(ballast.id)
    end = ended(client, batch)
    assert end.status == "completed" and end.request_counts.completed == 200


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 96 MiB, mounted at the folder of this test's server."""
    folder = tmp_path / "data"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96m", "tandem-test", str(folder)], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"this test needs a disk that it can fill, and may not mount one: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fill(path):
    """Takes all that is left of the disk."""
    with open(path, "wb", buffering=0) as ballast:
        for size in (1 << 20, 1 << 12):
            try:
                while True:
                    ballast.write(b"x" * size)
            except OSError as full:
                assert full.errno == errno.ENOSPC


def test_a_full_disk_pauses_a_batch_and_nothing_else(small_disk, serve):
    server = serve("--max-num-seqs", 1)
    client = server.openai()
    count = 200
    file = upload(client, [chat(str(i), max_tokens=100, ignore_eos=True) for i in range(count)])
    batch = begin(client, file)
    assert until(lambda: client.batches.retrieve(batch.id).request_counts.completed > 0, SECONDS)
    fill(small_disk / "ballast")
    paused = until(lambda: client.batches.retrieve(batch.id).model_extra["tandem"]["paused"], SECONDS)
    assert "disk" in paused and "free some space" in paused and str(small_disk) not in paused
    assert client.batches.retrieve(batch.id).status == "in_progress"
    assert server.metric("tandem_batches_paused") == 1
    with pytest.raises(openai.APIStatusError) as caught:
        upload(client, b"x" * (1 << 20))
    assert caught.value.status_code == 503 and "disk" in str(caught.value) and str(small_disk) not in str(caught.value)
    assert client.chat.completions.create(**chat("")["body"]).choices
    assert client.files.content(file.id).read()
    (small_disk / "ballast").unlink()
    end = ended(client, batch)
    assert end.status == "completed" and end.request_counts.completed == count
    answered = collections.Counter(line["custom_id"] for line in lines_of(client, end.output_file_id))
    assert answered == {str(i): 1 for i in range(count)}
    assert upload(client, b"x" * (1 << 20)).bytes == 1 << 20
    server.stop_cleanly()


def test_a_server_with_a_data_folder_may_open_a_file_for_each_connection(serve):
    connections = 1000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * connections + 64:
        pytest.skip(f"the system allows {hard} descriptors only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
    try:
        server = serve("--max-connections", connections)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    limits = pathlib.Path(f"/proc/{server.process.pid}/limits").read_text()
    (line,) = [line for line in limits.splitlines() if line.startswith("Max open files")]
    assert int(line.split()[3]) >= 2 * connections + 64, line


def test_a_database_that_is_damaged_or_of_another_version_is_refused_by_name(binary, serve, tmp_path):
    server = serve()
    upload(server.openai(), [chat("a")])
    server.stop_cleanly()
    database = tmp_path / "data" / "tandem.db"
    good = database.read_bytes()

    def refusal():
        done = subprocess.run([str(binary), "serve", str(LLAMA), "--port", "0", "--data-folder", str(tmp_path / "data")],
                              capture_output=True, text=True, timeout=SECONDS, stdin=subprocess.DEVNULL)
        assert done.returncode in (1, 2) and "tandem.db" in done.stdout + done.stderr
        return done.stdout + done.stderr

    with sqlite3.connect(database) as link:
        link.execute("PRAGMA user_version = 7")
    link.close()
    assert "version 7" in refusal()
    database.write_bytes(b"this is no database at all" * 100)
    assert "damaged" in refusal()
    database.write_bytes(good[:4096] + b"\xff" * (len(good) - 4096))
    assert "damaged" in refusal()
    database.write_bytes(good)
    assert len(serve().openai().files.list().data) == 1


def test_a_folder_serves_one_server_at_a_time(binary, serve, tmp_path):
    serve()
    done = subprocess.run([str(binary), "serve", str(LLAMA), "--port", "0", "--data-folder", str(tmp_path / "data")], capture_output=True,
                          text=True, timeout=SECONDS, stdin=subprocess.DEVNULL)
    assert done.returncode == 2 and "another server uses" in done.stdout + done.stderr
