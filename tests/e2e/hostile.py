#!/usr/bin/env python3
"""An hour (or less) of mixed good and hostile clients. Hostile ones vanish, stall, send a byte at a time, half-close, do not read,
send bodies that are slow to parse, flood, pipeline, send noise, endless headers and 100 MB bodies, and hold thousands of idle connections. Good ones must be served all
the while; at the end nothing may run, every block must be free, every gauge at rest and memory flat.

Usage: hostile.py [--binary build/dev/tandem] [--seconds 60] [--good 8] [--hostile 3] [--connections 10000] [--pause 0.2] [--model FOLDER]
  --hostile N       clients of each hostile kind
  --connections N   idle connections that are opened together, again and again
  --pause SECONDS   the longest pause of a hostile client between two attempts: a longer one for a long run beside other work
Hostile clients come from 127.0.0.2 to 127.0.0.4, good ones from 127.0.0.1, so that the limit on connections of one address tells
them apart. Last line `N passed, N failed` (checks); exit code 0 when all passed.
"""
import argparse
import asyncio
import collections
import concurrent.futures
import json
import logging
import multiprocessing
import pathlib
import random
import resource
import shutil
import socket
import struct
import sys
import tempfile
import time

import httpx
from server import Server, until

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MODEL = ROOT / "tests" / "goldens" / "llama-gqa-rope3-f32"
SERVER_FLAGS = ("--served-model-name", "hostile", "--num-kv-blocks", "512", "--max-num-seqs", "16", "--max-queue", "32", "--max-connections", "4096",
                "--max-connections-per-client", "1000", "--max-body-size", "32MiB", "--max-request-bytes", "128MiB", "--max-answer-bytes", "64MiB", "--header-timeout", "3s",
                "--body-timeout", "4s", "--idle-timeout", "5s", "--write-timeout", "4s")
RESTING_GAUGES = ("tandem_http_generations", "tandem_http_pending_deliveries", "tandem_http_unsent_bytes", "tandem_http_request_bytes_held")


def long_model(folder, source=MODEL):
    """The golden Llama with room for 16k tokens, so that streams last. Its words are noise anyway."""
    shutil.copytree(source, folder)
    config = json.loads((folder / "config.json").read_text())
    config["max_position_embeddings"] = 16384
    (folder / "config.json").write_text(json.dumps(config))
    return folder


class World:
    """What clients share: where the server is, until when, and what they saw."""

    def __init__(self, port, seconds, seed, pause):
        self.port = port
        self.end = time.monotonic() + seconds
        self.pause = pause
        self.random = random.Random(seed)
        self.counts = collections.Counter()
        self.first_chunk_seconds = []
        self.sockets = 0

    def going(self):
        return time.monotonic() < self.end

    async def connect(self, receive_bytes=0):
        """A raw connection from a hostile address; ConnectionError when there is none to be had."""
        self.sockets += 1
        raw = socket.socket()
        raw.setblocking(False)
        if receive_bytes:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        raw.setsockopt(socket.SOL_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT: as many ports as there are pairs
        raw.bind((f"127.0.0.{2 + self.sockets % 3}", 0))
        try:
            await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", self.port))
            return await asyncio.open_connection(sock=raw)
        except BaseException:
            raw.close()
            raise


def request(body, path="/v1/completions", headers=""):
    text = json.dumps(body)
    return f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n{headers}Content-Length: {len(text)}\r\n\r\n{text}".encode()


def generation(tokens=100, **more):
    return {"model": "hostile", "prompt": "x", "max_tokens": tokens, "ignore_eos": True, "stream": True} | more


async def until_closed(reader, seconds):
    """The status line, once the server has closed the connection or the time is over."""
    try:
        data = b""
        async with asyncio.timeout(seconds):
            while piece := await reader.read(65536):
                data = (data + piece)[:64]
    except TimeoutError:
        return "left open"
    except ConnectionError:
        pass
    return data[9:12].decode(errors="replace") if data.startswith(b"HTTP/1.1 ") else "closed"


async def drain_quietly(writer):
    try:
        await writer.drain()
        return True
    except ConnectionError:
        return False


# ---------------------------------------------------------------- the hostile kinds

async def vanish(world):
    """Resets the connection somewhere in a stream."""
    reader, writer = await world.connect()
    writer.write(request(generation(300)))
    for _ in range(world.random.choice((0, 1, 5))):
        await reader.read(2000)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
    return "left"


async def half_close(world):
    """Ends its sending side and waits for the answer that is not made any more."""
    reader, writer = await world.connect()
    writer.write(request(generation(2000)))
    writer.write_eof()
    result = await until_closed(reader, 30)
    writer.close()
    return result


async def stall(world):
    """Stops in the middle of its headers or its body."""
    reader, writer = await world.connect()
    whole = request(generation())
    writer.write(whole[:world.random.randrange(1, len(whole) - 1)])
    result = await until_closed(reader, 15)
    writer.close()
    return result


async def drip(world):
    """Sends a byte a second."""
    reader, writer = await world.connect()
    ending = asyncio.ensure_future(until_closed(reader, 15))
    for byte in request(generation()):
        writer.write(bytes([byte]))
        if ending.done() or not world.going():
            break
        await asyncio.wait((ending,), timeout=1)
    result = await ending
    writer.close()
    return result


async def slow_reader(world):
    """Asks for much and reads next to nothing."""
    reader, writer = await world.connect(receive_bytes=4096)
    reader._limit = 1  # the reader's own buffer must not read ahead either
    writer.write(request(generation(4000, n=2, logprobs=10)))
    for _ in range(20):
        try:
            if not await reader.read(1):
                break
        except ConnectionError:
            break
        if not world.going():
            break
        await asyncio.sleep(0.5)
    writer.transport.abort()
    return "left"


async def flood(world):
    """Asks more at a time than can wait, and at once again where it is refused."""
    async def one():
        reader, writer = await world.connect()
        try:
            for _ in range(20):
                writer.write(request(generation(20, stream=False)))
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
                await reader.readexactly(int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]))
                world.counts[f"flood answer {head[9:12].decode()}"] += 1
                if not world.going():
                    break
        finally:
            writer.close()
    results = await asyncio.gather(*[one() for _ in range(20)], return_exceptions=True)
    return "cut" if any(isinstance(result, BaseException) for result in results) else "answered"


async def pipelined_flood(world):
    """50 requests in one go; one is answered after the other."""
    reader, writer = await world.connect()
    for _ in range(50):
        writer.write(request(generation(3, stream=False)))
    answered = 0
    try:
        async with asyncio.timeout(20):
            while answered < 50 and (line := await reader.readline()):
                answered += b"HTTP/1.1 " in line
    except (TimeoutError, ConnectionError):
        pass
    writer.close()
    return "answered" if answered == 50 else "cut"


async def big_body(world):
    """100 MB, announced or in chunks without an end."""
    reader, writer = await world.connect()
    ending = asyncio.ensure_future(until_closed(reader, 20))
    chunked = world.random.random() < 0.5
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: h\r\n" + (b"Transfer-Encoding: chunked\r\n\r\n" if chunked else b"Content-Length: 100000000\r\n\r\n"))
    piece = b" " * 65536
    for _ in range(100_000_000 // len(piece)):
        writer.write(b"10000\r\n" + piece + b"\r\n" if chunked else piece)
        if ending.done() or not await drain_quietly(writer):
            break
    result = await ending
    writer.close()
    return result


async def nested_body(world):
    """JSON that is small to send and large to hold."""
    reader, writer = await world.connect()
    kind = world.random.choice((b"[[],", b"[1,", b'{"a":', b"[" * 50))
    body = (kind * 1_000_000)[:world.random.choice((1000, 60_000, 4_000_000))]
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    result = await until_closed(reader, 20)
    writer.close()
    return result


async def slow_to_parse(world):
    """Bodies within every limit on size that cost what a server may spend on one."""
    reader, writer = await world.connect()
    many_keys = "{" + ",".join(f'"{number:x}":0' for number in range(250)) + "}"
    kind = world.random.choice(("keys", "word", "stop", "messages"))
    body = {"keys": lambda: '{"prompt":"x","max_tokens":1,"x":[' + ",".join([many_keys] * 1000) + "]}",
            "word": lambda: json.dumps({"prompt": "a" * (4 << 20), "max_tokens": 1}),
            "stop": lambda: json.dumps({"prompt": "x", "max_tokens": 4, "stop": [letter * 1024 for letter in "abcdefghijklmnop"]}),
            "messages": lambda: json.dumps({"messages": [{"role": "user", "content": "a"}] * 2000, "max_tokens": 1})}[kind]().encode()
    path = b"/v1/chat/completions" if kind == "messages" else b"/v1/completions"
    writer.write(b"POST %s HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % (path, len(body)) + body)
    result = await until_closed(reader, 30)
    writer.close()
    return result


async def unread_answer(world):
    """Asks for a whole answer of some megabytes and does not read it."""
    reader, writer = await world.connect(receive_bytes=4096)
    reader._limit = 1
    writer.write(request({"prompt": "b" * 1_000_000, "return_token_strs": True}, path="/tokenize"))
    await drain_quietly(writer)
    await asyncio.sleep(world.random.uniform(0, 6))
    writer.transport.abort()
    return "left"


async def two_lengths(world):
    """What a proxy may read as one request and this server as two."""
    reader, writer = await world.connect()
    coding = world.random.choice((b"identity", b"gzip", b"xchunked", b"chunked, identity", b"chunked, chunked"))
    writer.write(b"POST /ping HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: " + coding + b"\r\n\r\nGET /version HTTP/1.1\r\nHost: h\r\n\r\n")
    result = await until_closed(reader, 15)
    writer.close()
    # 503: too many connections are open, so nothing was read.
    return "refused" if result in ("400", "503", "closed") else f"SMUGGLED {result}"


async def endless_headers(world):
    reader, writer = await world.connect()
    ending = asyncio.ensure_future(until_closed(reader, 20))
    writer.write(b"GET /health HTTP/1.1\r\nHost: h\r\n")
    for number in range(100_000):
        writer.write(b"X-%d: %s\r\n" % (number, b"a" * 100))
        if number % 20 == 0 and (ending.done() or not await drain_quietly(writer)):
            break
    result = await ending
    writer.close()
    return result


async def noise(world):
    reader, writer = await world.connect()
    writer.write(world.random.randbytes(world.random.randrange(1, 5000)) + b"\r\n\r\n")
    result = await until_closed(reader, 15)
    writer.close()
    return result


async def pipeline(world):
    """Thousands of requests ahead, no answer read."""
    reader, writer = await world.connect(receive_bytes=4096)
    reader._limit = 1
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n" * 5000)
    await asyncio.sleep(world.random.uniform(0, 6))
    writer.transport.abort()
    return "left"


KINDS = (vanish, half_close, stall, drip, slow_reader, flood, pipelined_flood, big_body, nested_body, slow_to_parse, unread_answer, two_lengths, endless_headers, noise, pipeline)


async def again_and_again(kind, world):
    while world.going():
        try:
            result = await kind(world)
        except OSError:
            result = "refused"
        world.counts[f"{kind.__name__} {result}"] += 1
        await asyncio.sleep(world.random.uniform(0, world.pause))


async def crowd(world, connections):
    """Opens connections without asking anything, holds them, and opens them again when most are gone."""
    while world.going():
        held = []
        while len(held) < connections and world.going():
            opened = await asyncio.gather(*[world.connect() for _ in range(min(200, connections - len(held)))], return_exceptions=True)
            held += [pair for pair in opened if not isinstance(pair, BaseException)]
            if len(opened) > sum(not isinstance(pair, BaseException) for pair in opened):
                world.counts["crowd refused"] += 1
                break
        world.counts["crowd connections"] += len(held)
        for _ in range(8):
            if world.going():
                await asyncio.sleep(1)
        for _, writer in held:
            writer.transport.abort()


# ---------------------------------------------------------------- the good ones

async def good_client(world, number):
    """Streams answers and counts every one that is not whole; comes back when it is told that the server is full."""
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{world.port}", timeout=60, verify=False) as http:
        while world.going():
            tokens = world.random.choice((1, 8, 40))
            long_body = {"user": "u" * 100_000} if world.random.random() < 0.3 else {}  # parsed beside the I/O threads
            began = time.monotonic()
            chunks, status = 0, 0
            try:
                async with http.stream("POST", "/v1/completions", json=generation(tokens, **long_body)) as response:
                    status = response.status_code
                    async for piece in response.aiter_lines():
                        if piece.startswith("data: {"):
                            if chunks == 0:
                                world.first_chunk_seconds.append(time.monotonic() - began)
                            chunks += 1
            except httpx.RemoteProtocolError:
                world.counts["good reconnected" if status == 0 else "good BROKEN"] += 1  # an idle connection was closed as it was used
                continue
            except httpx.TransportError as error:
                world.counts[f"good BROKEN {type(error).__name__}"] += 1
                continue
            if status == 429:
                world.counts["good told to wait"] += 1
                await asyncio.sleep(0.2)
            elif status == 503:
                world.counts["good told that memory is short"] += 1
                await asyncio.sleep(0.2)
            elif status == 200 and chunks >= tokens:
                world.counts["good served"] += 1
            else:
                world.counts[f"good BROKEN {status} {chunks} of {tokens}"] += 1
            await asyncio.sleep(world.pause / 4 * (number + 1))


async def everyone(tasks):
    await asyncio.gather(*tasks)


def hostile_process(port, seconds, seed, pause, hostile):
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns of every write to a connection that the server has cut
    world = World(port, seconds, seed, pause)
    asyncio.run(everyone([again_and_again(kind, world) for kind in KINDS for _ in range(hostile)]))
    return world.counts


def crowd_process(port, seconds, seed, pause, connections):
    raise_descriptor_limit()
    world = World(port, seconds, seed, pause)
    asyncio.run(everyone([crowd(world, connections)]))
    return world.counts


def run_round(server, seconds, seed, numbers):
    """`numbers`: of good and hostile clients and of the crowd's connections, and the longest pause. Each kind has a process, so that none of them waits for
    another's turn; returns what the good ones saw, with everybody's counts."""
    good, hostile, connections, pause = numbers
    world = World(server.port, seconds, seed, pause)
    with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        others = []
        if hostile:
            others.append(pool.submit(hostile_process, server.port, seconds, seed, pause, hostile))
        if connections:
            others.append(pool.submit(crowd_process, server.port, seconds, seed, pause, connections))
        asyncio.run(everyone([good_client(world, number) for number in range(good)]))
        for other in others:
            world.counts += other.result()
    return world


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


def at_rest(server):
    values = {name: value for name, _, value in server.metrics()}
    return server.is_idle() and all(values[name] == 0 for name in RESTING_GAUGES) and values["tandem_http_connections"] <= 1


def hostile_run(server, seconds, good=8, hostile=3, connections=10_000, pause=0.2):
    """Returns [(check, passed)] and prints what happened."""
    quiet = run_round(server, max(2.0, seconds / 12), 1, (good, 0, 0, pause))
    # Memory is compared after a first round, when every buffer has met its largest request.
    run_round(server, max(6.0, seconds / 4), 2, (good, hostile, connections, pause))
    rested = bool(until(lambda: at_rest(server), seconds=60, every=0.2))
    before = server.resident_bytes()
    main = run_round(server, seconds * 2 / 3, 3, (good, hostile, connections, pause))
    rested = bool(until(lambda: at_rest(server), seconds=60, every=0.2)) and rested
    after = server.resident_bytes()
    for key, count in sorted(main.counts.items()):
        print(f"  {key}: {count}")
    for name, world in (("alone", quiet), ("among hostile ones", main)):
        print(f"good clients {name}: {world.counts['good served']} served, first chunk median {percentile(world.first_chunk_seconds, 0.5) * 1e3:.0f} ms, "
              f"P95 {percentile(world.first_chunk_seconds, 0.95) * 1e3:.0f} ms")
    print(f"resident {before >> 20} MiB after the first round, {after >> 20} MiB at the end")
    cut = {name: server.metric(f"tandem_http_{name}_total") for name in ("slow_readers_cut", "requests_timed_out", "idle_closed", "disconnect_cancels")}
    print(f"counted by the server: {cut}")
    broken = {key: count for key, count in main.counts.items() if "BROKEN" in key or "SMUGGLED" in key or key.endswith("left open")}
    code = server.stop()
    return [("good clients were served, each answer whole", main.counts["good served"] > 0 and not broken),
            ("slow readers, late requests, idle and vanished clients were all cut", all(cut.values())),
            ("nothing runs, nothing waits, all blocks are free, all gauges rest", rested),
            ("memory is flat (within 24 MiB or 10 %)", after - before < max(24 << 20, before // 10)),
            ("the exit code after SIGTERM is 0", code == 0)]


def raise_descriptor_limit():
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=ROOT / "build/dev/tandem")
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--good", type=int, default=8)
    parser.add_argument("--hostile", type=int, default=3)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--pause", type=float, default=0.2)
    options = parser.parse_args()
    connections = min(options.connections, raise_descriptor_limit() - 1000)
    log = ROOT / "build" / "hostile.log"
    with tempfile.TemporaryDirectory() as folder:
        server = Server(options.binary, long_model(pathlib.Path(folder) / "long", options.model), log, SERVER_FLAGS)
        server.wait_ready()
        checks = hostile_run(server, options.seconds, options.good, options.hostile, connections, options.pause)
    for check, passed in checks:
        print(f"{'ok' if passed else 'FAILED'}: {check}")
    failed = sum(not passed for _, passed in checks)
    if failed:
        print(f"log: {log}\n{server.log_tail(20)}")
    print(f"{len(checks) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
