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


def pytorch_answerer(folder: pathlib.Path, dtype: str) -> Answerer:
    import data
    import export
    import torch
    from model import greedy

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = export.read(folder).to(device, getattr(torch, dtype)).eval()
    encoder = data.Encoder(folder)

    def answer(examples: list[tasks.Example]) -> list[str]:
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


def evaluate(answerer: Answerer, names: list[str], count: int, seed: int, show: int) -> dict[str, dict[str, float]]:
    """Prints a row for each task and returns them."""
    rows: dict[str, dict[str, float]] = {}
    print(f"{'task':14} {'right':>12} {'accuracy':>9} {'seconds':>8}")
    for name in names:
        examples = tasks.held_out(name, count, seed)
        started = time.monotonic()
        answers = answerer(examples)
        seconds = time.monotonic() - started
        judged = [tasks.is_right(answer, example.checker, example.expected) for answer, example in zip(answers, examples)]
        rows[name] = {"right": sum(judged), "asked": count, "accuracy": sum(judged) / count}
        print(f"{name:14} {f'{sum(judged)}/{count}':>12} {100 * sum(judged) / count:8.1f}% {seconds:8.1f}", flush=True)
        wrong = [(example, answer) for example, answer, right in zip(examples, answers, judged) if not right]
        for example, answer in wrong[:show]:
            print(f"  asked {example.messages[-1]['content'][-160:]!r}\n  right {example.answer!r}\n  got   {answer!r}")
    return rows


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
    arguments = parser.parse_args()
    names = task_file.task_names(arguments.tasks)
    if arguments.model:
        answerer = pytorch_answerer(arguments.model, arguments.dtype)
    else:
        answerer = server_answerer(arguments.server, arguments.parallel)
    rows = evaluate(answerer, names, arguments.count, arguments.seed, arguments.show)
    if arguments.out:
        arguments.out.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
