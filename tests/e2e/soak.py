#!/usr/bin/env python3
"""Soaks a server: clients that stream, stop early, disconnect in mid-stream or ask for nonsense. Between them others ask questions, which
the server must answer as when it was quiet. At the end nothing may run or wait, every block must be free and memory flat.

Usage: soak.py [--binary build/dev/tandem] [--model FOLDER] [--seconds 60] [--clients 24]
  MODEL defaults to the model that comes with Tandem. Last line `N passed, N failed` (checks); exit code 0 when all passed.
"""
import argparse
import asyncio
import collections
import pathlib
import random
import sys
import time

import httpx
from server import Server, until

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools" / "train"))
import tasks  # noqa: E402

ABILITIES = ("add_3", "subtract_3", "copy", "look_up_500", "turns")
EACH = 8  # questions of an ability
ASKERS = 4
# With a small KV pool, the warm-up uses every block.
FLAGS = ("--served-model-name", "soak", "--max-num-seqs", "16", "--max-queue", "64", "--max-model-len", "1024", "--num-kv-blocks", "64")


async def client(server, number, end, counts):
    random_ = random.Random(number)
    async with httpx.AsyncClient(base_url=server.url, timeout=60, verify=False) as http:
        while time.monotonic() < end:
            body = {"model": "soak", "prompt": [random_.randrange(256) for _ in range(random_.choice((1, 20, 200, 300)))],
                    "max_tokens": random_.choice((1, 8, 60, 150)), "temperature": random_.choice((0, 1.0)), "seed": random_.randrange(1000),
                    "n": random_.choice((1, 1, 1, 3)), "stream": True, "ignore_eos": random_.random() < 0.5}
            if random_.random() < 0.3:
                body["prompt"] = [9] * 290 + body["prompt"][:10]  # shared: prefix cache hits
            if random_.random() < 0.05:
                body["temperature"] = "nonsense"
            leave_after = random_.choice((None, None, 0, 1, 10))
            try:
                async with http.stream("POST", "/v1/completions", json=body) as response:
                    counts[response.status_code] += 1
                    chunks = 0
                    async for _ in response.aiter_raw():
                        if chunks == leave_after:
                            counts["left"] += 1
                            break
                        chunks += 1
            except httpx.TransportError as error:
                counts[type(error).__name__] += 1


async def answer(http, question):
    """The greedy answer; None: refused, because the queue is full."""
    reply = await http.post("/v1/chat/completions", json={"model": "soak", "messages": question, "max_tokens": 160, "temperature": 0})
    return None if reply.status_code == 429 else reply.raise_for_status().json()["choices"][0]["message"]["content"]


async def alone(server, questions):
    async with httpx.AsyncClient(base_url=server.url, timeout=60, verify=False) as http:
        return [await answer(http, question) for question in questions]


async def asker(server, number, end, questions, right, counts):
    random_ = random.Random(f"asker {number}")
    async with httpx.AsyncClient(base_url=server.url, timeout=60, verify=False) as http:
        while time.monotonic() < end:
            index = random_.randrange(len(questions))
            said = await answer(http, questions[index])
            if said is not None:
                counts["same answer" if said == right[index] else "ANOTHER ANSWER"] += 1
            else:
                await asyncio.sleep(0.01)


def soak(server, seconds, clients):
    """Returns [(check, passed)] and prints what happened."""
    counts = collections.Counter()
    questions = [example.messages for ability in ABILITIES for example in tasks.held_out(ability, EACH)]
    right = asyncio.run(alone(server, questions))

    async def everyone(until_time, first):
        await asyncio.gather(*[client(server, first + n, until_time, counts) for n in range(clients)],
                             *[asker(server, first + n, until_time, questions, right, counts) for n in range(ASKERS)])

    # Memory is compared after a first round, when every buffer has met its largest request.
    warm = min(15.0, seconds / 3)
    asyncio.run(everyone(time.monotonic() + warm, 0))
    until(server.is_idle)
    before = server.resident_bytes()
    asyncio.run(everyone(time.monotonic() + seconds - warm, 1000))
    idle = bool(until(server.is_idle, seconds=60))
    after = server.resident_bytes()
    grown = after - before
    print(f"soak: {dict(counts)}; resident {before >> 20} MiB after warm-up, {after >> 20} MiB at the end")
    allowed = {200, 400, 422, 429, "left", "same answer", "ANOTHER ANSWER"}
    code = server.stop()
    return [("every answer was one of 200, 400, 422, 429", set(counts) <= allowed),
            ("questions are answered as by the quiet server", counts["same answer"] > 0 and counts["ANOTHER ANSWER"] == 0),
            ("clients were served and clients left", counts[200] > 0 and counts["left"] > 0),
            ("nothing runs, nothing waits, all blocks are free", idle),
            ("memory is flat (within 16 MiB or 5 %)", grown < max(16 << 20, before // 20)),
            ("the exit code after SIGTERM is 0", code == 0)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=ROOT / "build/dev/tandem")
    parser.add_argument("--model")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=24)
    options = parser.parse_args()
    log = ROOT / "build" / "soak.log"
    server = Server(options.binary, options.model, log, FLAGS)
    server.wait_ready()
    checks = soak(server, options.seconds, options.clients)
    for check, passed in checks:
        print(f"{'ok' if passed else 'FAILED'}: {check}")
    failed = sum(not passed for _, passed in checks)
    if failed:
        print(f"log: {log}\n{server.log_tail(20)}")
    print(f"{len(checks) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
