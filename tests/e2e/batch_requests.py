"""What the tests of files and batches over HTTP share: requests, and servers with a data folder."""
import io
import json
import pathlib

import pytest
from conftest import launch
from server import until

LLAMA = pathlib.Path(__file__).resolve().parent.parent / "goldens" / "llama-gqa-rope3-f32"
SECONDS = 120  # for a batch of a few lines, on a busy machine


def chat(custom_id, content="Hi", **fields):
    body = {"model": "golden", "messages": [{"role": "user", "content": content}], "max_tokens": 4, "temperature": 0} | fields
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body}


def jsonl(lines):
    return "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines).encode()


def upload(client, lines, name="in.jsonl", **fields):
    data = lines if isinstance(lines, bytes) else jsonl(lines)
    return client.files.create(file=(name, io.BytesIO(data)), purpose="batch", **fields)


def begin(client, file, endpoint="/v1/chat/completions", window="24h", **fields):
    return client.batches.create(input_file_id=file.id, endpoint=endpoint, completion_window=window, **fields)


def ended(client, batch, seconds=SECONDS):
    """The batch once nothing more will happen to it."""
    def look():
        now = client.batches.retrieve(batch.id)
        return now if now.status in ("completed", "failed", "expired", "cancelled") else None
    end = until(look, seconds, every=0.1)
    assert end, client.batches.retrieve(batch.id)
    return end


def lines_of(client, file_id):
    text = client.files.content(file_id).text if file_id else ""
    assert text == "" or text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def serve(binary, tmp_path, request):
    """serve(*flags): a server with the data folder of this test; the next call may be another process of it."""
    started = []

    def start(*flags, folder="data"):
        name = f"{request.node.name}-{len(started)}"
        started.append(launch(binary, name, LLAMA, "--served-model-name", "golden", "--dtype", "float32", "--data-folder",
                              tmp_path / folder, *flags))
        return started[-1]

    yield start
    for server in started:
        if server.process.returncode is None:
            server.stop_cleanly()
