#!/usr/bin/env python3
"""Exact accuracy on held-out prompts, task by task: of a model folder through PyTorch, or of a server through its OpenAI API.

Usage: tools/train/evaluate.py --model DIR [--dtype float32|bfloat16]      (needs PyTorch)
       tools/train/evaluate.py --server http://127.0.0.1:8000 [--parallel N]
Both: [--count N] [--seed S] [--tasks NAME,...] [--out FILE.json] [--show N]
"""
import argparse
import concurrent.futures
import json
import pathlib
import time
import urllib.request
from collections.abc import Callable

import task_file
import tasks

ANSWER_TOKENS = 160
BATCH_TOKENS = {"cpu": 16384, "cuda": 262144}  # of prompts decoded together
Answerer = Callable[[list[tasks.Example]], list[str]]


def pytorch_answerer(folder: pathlib.Path, dtype: str, wait_seconds: float) -> Answerer:
    import data
    import export
    import torch
    from model import greedy

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.zeros(1, device=device)  # starts the device

    def answer(examples: list[tasks.Example]) -> list[str]:
        deadline = time.monotonic() + wait_seconds
        while wait_seconds and not folder.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        model = export.read(folder).to(device, getattr(torch, dtype)).eval()
        encoder = data.Encoder(folder)
        prompts = sorted(((encoder.prompt(example), index) for index, example in enumerate(examples)), key=lambda pair: len(pair[0]))
        answers = [""] * len(examples)
        while prompts:
            size = max(1, BATCH_TOKENS[device.type] // (len(prompts[-1][0]) + ANSWER_TOKENS))
            batch, prompts = prompts[-size:], prompts[:-size]
            written = greedy(model, [prompt for prompt, _ in batch], ANSWER_TOKENS, encoder.end)
            for (_, index), ids in zip(batch, written):
                answers[index] = encoder.tokenizer.decode(ids)
        return answers

    return answer


def server_answerer(base: str, parallel: int) -> Answerer:
    def call(path: str, body: dict[str, object] | None = None) -> dict:
        request = urllib.request.Request(base.rstrip("/") + path, None if body is None else json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=300) as reply:
            return json.load(reply)

    name = call("/v1/models")["data"][0]["id"]

    def one(example: tasks.Example) -> str:
        body = {"model": name, "messages": example.messages, "temperature": 0, "max_tokens": ANSWER_TOKENS}
        return call("/v1/chat/completions", body)["choices"][0]["message"]["content"] or ""

    def answer(examples: list[tasks.Example]) -> list[str]:
        with concurrent.futures.ThreadPoolExecutor(parallel) as pool:
            return list(pool.map(one, examples))

    return answer


def evaluate(answerer: Answerer, names: list[str], count: int, seed: int, show: int, together: bool = False) -> dict[str, dict[str, float]]:
    """Prints a row for each task and returns them. `together`: answers the prompts of all tasks at once, which a GPU does faster."""
    rows: dict[str, dict[str, float]] = {}
    groups = [names] if together else [[name] for name in names]
    for group in groups:
        examples = [example for name in group for example in tasks.held_out(name, count, seed)]
        started = time.monotonic()
        answers = answerer(examples)
        seconds = time.monotonic() - started
        for index, name in enumerate(group):
            part = slice(index * count, (index + 1) * count)
            if not rows:
                print(f"{'task':14} {'right':>12} {'accuracy':>9} {'seconds':>8}")
            rows[name] = judge(name, examples[part], answers[part], seconds, show)
    return rows


def judge(name: str, examples: list[tasks.Example], answers: list[str], seconds: float, show: int) -> dict[str, float]:
    judged = [tasks.is_right(answer, example.checker, example.expected) for answer, example in zip(answers, examples)]
    right, count = sum(judged), len(examples)
    print(f"{name:14} {f'{right}/{count}':>12} {100 * right / count:8.1f}% {seconds:8.1f}", flush=True)
    wrong = [(example, answer) for example, answer, is_right in zip(examples, answers, judged) if not is_right]
    for example, answer in wrong[:show]:
        print(f"  asked {example.messages[-1]['content'][-160:]!r}\n  right {example.answer!r}\n  got   {answer!r}")
    return {"right": right, "asked": count, "accuracy": right / count}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--model", type=pathlib.Path)
    source.add_argument("--server")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--parallel", type=int, default=4, help="requests at a time")
    parser.add_argument("--count", type=int, default=200, help="prompts of each task")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tasks", help="names with commas (default: all)")
    parser.add_argument("--out", type=pathlib.Path, help="the table as JSON")
    parser.add_argument("--show", type=int, default=0, help="wrong answers of each task to print")
    parser.add_argument("--wait", type=float, default=0.0, metavar="SECONDS", help="with --model: for the folder to be written")
    parser.add_argument("--together", action="store_true", help="ask the prompts of all tasks at once: faster on a GPU")
    arguments = parser.parse_args()
    names = task_file.task_names(arguments.tasks)
    if arguments.model:
        answerer = pytorch_answerer(arguments.model, arguments.dtype, arguments.wait)
    else:
        answerer = server_answerer(arguments.server, arguments.parallel)
    rows = evaluate(answerer, names, arguments.count, arguments.seed, arguments.show, arguments.together)
    if arguments.out:
        arguments.out.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
