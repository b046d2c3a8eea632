#!/usr/bin/env python3
"""Measures llama.cpp on this machine's CPU with a random-weight Llama and prints JSON, to be read beside Tandem's own numbers.

Usage: build/peers-venv/bin/python bench/peers/run_llama_cpp.py [--types F16,BF16,Q8_0,Q4_0] [--shape 1.1B] [--threads 2]
           [--prompt 512] [--batches 1,16,32] [--steps 32] [--rounds 5] [--own-prompts] [-o FILE]
  Needs bench/peers/install.sh. The model files are written once to build/peers (2.2 GB for F16). Progress goes to stderr.

What is measured, each as the median of --rounds:
  prefill   one prompt in one call, tokens/s
  decode    batches of sequences, one token each a step, for --steps steps after the prompt. The prompt is shared by all
            sequences of the batch (computed once); with --own-prompts each has its own. Tokens are fixed ids: what they are does
            not change the work. Sampling is not included.
Run it on an idle machine: the record says what load it saw, and compare only numbers of one run.
"""
import argparse
import ctypes
import os
import statistics
import sys
import time

import llama_cpp

from random_gguf import SHAPES, TYPES, model_file
from report import write_report


class Runner:
    """One loaded model and one context."""

    def __init__(self, path, threads, sequences, context):
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
        if not self.model:
            raise SystemExit(f"llama.cpp could not load {path}; delete it and run again")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = context
        params.n_batch = 2048
        params.n_ubatch = 512
        params.n_seq_max = sequences
        params.n_threads = threads
        params.n_threads_batch = threads
        params.kv_unified = True  # one pool: a shared prompt is stored once
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        if not self.context:
            raise SystemExit("llama.cpp could not make a context: too little memory?")
        self.memory = llama_cpp.llama_get_memory(self.context)
        self.batch = llama_cpp.llama_batch_init(2048, 0, 1)

    def close(self):
        llama_cpp.llama_batch_free(self.batch)
        llama_cpp.llama_free(self.context)
        llama_cpp.llama_model_free(self.model)

    def decode(self, entries):
        """entries: [(token, position, sequence, wants logits)]"""
        for i, (token, position, sequence, logits) in enumerate(entries):
            self.batch.token[i] = token
            self.batch.pos[i] = position
            self.batch.n_seq_id[i] = 1
            self.batch.seq_id[i][0] = sequence
            self.batch.logits[i] = logits
        self.batch.n_tokens = len(entries)
        code = llama_cpp.llama_decode(self.context, self.batch)
        if code != 0:
            raise SystemExit(f"llama_decode failed with code {code}")

    def prefill(self, sequence, tokens):
        self.decode([(5 + (i * 7 + sequence) % 250, i, sequence, i == tokens - 1) for i in range(tokens)])

    def clear(self):
        llama_cpp.llama_memory_clear(self.memory, True)


def measure(path, type_name, options):
    sequences = max(options.batches)
    per_sequence = options.steps + (options.prompt if options.own_prompts else 0)
    runner = Runner(path, options.threads, sequences, options.prompt + sequences * per_sequence + 256)
    results = []

    def record(test, samples, **more):
        results.append({"weights": type_name, "test": test, "tokens_per_s": round(statistics.median(samples), 2),
                        "samples": [round(s, 2) for s in samples]} | more)
        print(f"  {type_name} {test} {more}: {results[-1]['tokens_per_s']} tokens/s", file=sys.stderr)

    samples = []
    for round_ in range(-1, options.rounds):
        runner.clear()
        began = time.perf_counter()
        runner.prefill(0, options.prompt)
        if round_ >= 0:  # the first one warms up
            samples.append(options.prompt / (time.perf_counter() - began))
    record("prefill", samples, prompt_tokens=options.prompt)

    for batch in options.batches:
        samples = []
        for _ in range(options.rounds):
            runner.clear()
            runner.prefill(0, options.prompt)
            for sequence in range(1, batch):
                if options.own_prompts:
                    runner.prefill(sequence, options.prompt)
                else:
                    llama_cpp.llama_memory_seq_cp(runner.memory, 0, sequence, -1, -1)
            began = time.perf_counter()
            for step in range(options.steps):
                runner.decode([(7 + (step + s) % 250, options.prompt + step, s, True) for s in range(batch)])
            samples.append(batch * options.steps / (time.perf_counter() - began))
        record("decode", samples, batch=batch, prompt_tokens=options.prompt, prompts="own" if options.own_prompts else "shared",
               steps=options.steps)
    runner.close()
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda text: [int(part) for part in text.split(",")]
    parser.add_argument("--types", type=lambda text: text.split(","), default=["F16", "BF16", "Q8_0"])
    parser.add_argument("--shape", choices=SHAPES, default="1.1B")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--batches", type=numbers, default=[1, 16, 32])
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--own-prompts", action="store_true")
    parser.add_argument("-o", "--output", default="-")
    options = parser.parse_args()
    unknown = [name for name in options.types if name not in TYPES]
    if unknown:
        parser.error(f"unknown type {unknown[0]}; known: {', '.join(TYPES)}")

    quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)  # kept alive to the end
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    load_before = os.getloadavg()[0]
    results = []
    for name in options.types:
        path = model_file(options.shape, name)
        print(f"measuring {path.name}", file=sys.stderr)
        results += measure(path, name, options)
    peer = {"program": "llama.cpp through llama-cpp-python", "version": llama_cpp.__version__,
            "system": llama_cpp.llama_print_system_info().decode()}
    write_report(peer, options, load_before, results)


if __name__ == "__main__":
    main()
