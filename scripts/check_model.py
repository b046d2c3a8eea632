#!/usr/bin/env python3
"""Compares Tandem's greedy answers for a model folder with those of transformers, on 200 prompts.

Usage: scripts/check_model.py DIR [--binary build/release/tandem | --server URL] [--prompts 200] [--tokens 32] [--dtype float32]
Needs the packages torch and transformers (docs/default-model.md says how to install them). Without --server it starts
`tandem serve DIR` on a free port and stops it at the end. Half of the prompts are plain texts; the other half are conversations if
the folder has a chat template, so that template and tokenizer are compared too.

An answer that differs is a near tie if transformers' own best two log-probabilities lie within --tie of each other at the token
where the answers part: rounding decides there. Exit code: 0 all answers agree or part at a near tie, 1 some differ.
"""
import argparse
import contextlib
import json
import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from typing import BinaryIO

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

WORDS = ("the a one little server model river forest letter number answer question reads writes sends waits finds red blue green old new "
         "quick slow light heavy house garden table paper What is How many Why and or but with before after between under over 1 2 3 47 "
         "128 4096 plus minus").split()
ENDS = (".", "?", "!", ":", "", "\n", " =", ", and")
START_SECONDS = 300


def make_texts(count: int) -> list[str]:
    """Plain texts of 1 to 120 words from a fixed seed; a few have letters beyond ASCII."""
    rng = random.Random(1)
    texts = []
    for _ in range(count):
        chosen = [rng.choice(WORDS) for _ in range(rng.choice((1, 2, 4, 8, 16, 40, 120)))]
        if rng.random() < 0.1:
            chosen.append(rng.choice(("Größe", "señor", "日本語", "🙂", '"quoted"', "x = [1, 2];")))
        text = " ".join(chosen) + rng.choice(ENDS)
        texts.append(text[:1].upper() + text[1:])
    return texts


def post(url: str, body: dict) -> dict:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as reply:
        return json.load(reply)


def get(url: str) -> dict:
    with urllib.request.urlopen(url, timeout=60) as reply:
        return json.load(reply)


def tail(log: BinaryIO) -> str:
    log.seek(0)
    return log.read()[-2000:].decode(errors="replace")


def wait_until_ready(process: subprocess.Popen, port: int, log: BinaryIO) -> None:
    """Ends this program with the tail of the server's log if the server ends or is not ready in time."""
    end = time.monotonic() + START_SECONDS
    while True:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=5)
            return
        trouble = None
        if process.poll() is not None:
            trouble = "the server ended"
        elif time.monotonic() > end:
            trouble = f"the server was not ready within {START_SECONDS} seconds"
        if trouble:
            sys.exit(f"check_model: {trouble}:\n{tail(log)}")
        time.sleep(0.1)


@contextlib.contextmanager
def serving(binary: pathlib.Path, folder: pathlib.Path, dtype: str) -> Iterator[str]:
    """A server of the folder for as long as the block runs; yields its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(binary), "serve", str(folder), "--port", str(port), "--dtype", dtype]
    # Not a pipe, which would fill while nothing reads it and hold up the server.
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)
        try:
            wait_until_ready(process, port, log)
            yield f"http://127.0.0.1:{port}"
        except OSError as error:  # of a request, too
            sys.exit(f"check_model: {error}; the server's log ends with:\n{tail(log)}")
        finally:
            process.terminate()
            process.wait()


class Reference:
    """The model as transformers runs it."""

    def __init__(self, folder: pathlib.Path, dtype: str) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()

    def ids(self, text: str, chat: bool) -> list[int]:
        if not chat:
            return self.tokenizer(text)["input_ids"]
        conversation = [{"role": "user", "content": text}]
        written = self.tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True)
        return self.tokenizer(written, add_special_tokens=False)["input_ids"]

    @torch.no_grad()
    def answer(self, ids: list[int], tokens: int) -> tuple[list[int], list[float]]:
        """The greedy tokens, and by how much the best log-probability leads the second at each."""
        prompt = torch.tensor([ids])
        out = self.model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=tokens, do_sample=False, temperature=None,
                                  top_p=None, top_k=None, num_beams=1, output_logits=True, return_dict_in_generate=True,
                                  pad_token_id=self.tokenizer.pad_token_id or 0)
        leads = [float(top[0] - top[1]) for top in (logits[0].float().topk(2).values for logits in out.logits)]
        return out.sequences[0, len(ids):].tolist(), leads

    def text(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def lead_where_they_part(self, ids: list[int], leads: list[float], other: str) -> float:
        """The smallest lead up to the token where the text parts from `other`: a token early, since a character may take several."""
        for count in range(1, len(ids) + 1):
            if not other.startswith(self.text(ids[:count]).rstrip("\ufffd")):
                return min(leads[max(0, count - 2): count])
        return leads[-1]


def ask(base: str, name: str, text: str, chat: bool, tokens: int) -> str:
    common = {"model": name, "max_tokens": tokens, "temperature": 0}
    if chat:
        reply = post(f"{base}/v1/chat/completions", common | {"messages": [{"role": "user", "content": text}]})
        return reply["choices"][0]["message"]["content"] or ""
    return post(f"{base}/v1/completions", common | {"prompt": text})["choices"][0]["text"]


def compare(base: str, reference: Reference, arguments: argparse.Namespace) -> int:
    """Prints what differs and a summary; returns how many answers differ beyond near ties."""
    name = get(f"{base}/v1/models")["data"][0]["id"]
    has_template = bool(reference.tokenizer.chat_template)
    same = ties = 0
    wrong = []
    for number, text in enumerate(make_texts(arguments.prompts)):
        chat = has_template and number % 2 == 1
        ids, leads = reference.answer(reference.ids(text, chat), arguments.tokens)
        got, expected = ask(base, name, text, chat, arguments.tokens), reference.text(ids)
        if got == expected:
            same += 1
        elif (lead := reference.lead_where_they_part(ids, leads, got)) <= arguments.tie:
            ties += 1
        else:
            wrong.append((text, chat, expected, got, lead))
    for text, chat, expected, got, lead in wrong[:10]:
        print(f"differs ({'chat' if chat else 'text'}, lead {lead:.4f}): {text[-80:]!r}\n  transformers {expected!r}\n  tandem       {got!r}")
    kinds = "half of them chat" if has_template else "no chat template"
    print(f"{arguments.model}: {arguments.prompts} prompts ({kinds}), {same} the same, {ties} part at a near tie, {len(wrong)} differ")
    return len(wrong)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--binary", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent / "build/release/tandem")
    parser.add_argument("--server", help="address of a server that serves the folder already")
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--tie", type=float, default=2e-3, help="lead of a logit below which rounding may decide (bfloat16: try 0.1)")
    arguments = parser.parse_args()
    if not (arguments.model / "config.json").exists():
        parser.error(f"{arguments.model} has no config.json: give a Hugging Face model folder")
    reference = Reference(arguments.model, arguments.dtype)
    if arguments.server:
        return 1 if compare(arguments.server.rstrip("/"), reference, arguments) else 0
    with serving(arguments.binary, arguments.model, arguments.dtype) as base:
        return 1 if compare(base, reference, arguments) else 0


if __name__ == "__main__":
    sys.exit(main())
