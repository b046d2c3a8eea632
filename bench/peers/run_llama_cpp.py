#!/usr/bin/env python3
"""Measures llama.cpp on this machine's CPU with a random-weight Llama and prints JSON, to be read beside Tandem's own numbers.

Usage: build/peers-venv/bin/python bench/peers/run_llama_cpp.py [--types F16,BF16,Q8_0] [--shape 1.1B] [--threads 2]
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
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time

import gguf
import llama_cpp
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SHAPES = {  # layers, hidden, heads, KV heads, FFN, vocabulary
    "1.1B": (22, 2048, 32, 4, 5632, 32000),
    "tiny": (2, 256, 8, 2, 512, 512),
}
TYPES = {"F32": gguf.GGMLQuantizationType.F32, "F16": gguf.GGMLQuantizationType.F16, "BF16": gguf.GGMLQuantizationType.BF16,
         "Q8_0": gguf.GGMLQuantizationType.Q8_0}
FILE_TYPES = {"F32": gguf.LlamaFileType.ALL_F32, "F16": gguf.LlamaFileType.MOSTLY_F16, "BF16": gguf.LlamaFileType.MOSTLY_BF16,
              "Q8_0": gguf.LlamaFileType.MOSTLY_Q8_0}


def write_model(path, shape, type_name, context):
    """A GGUF file with seeded random weights and no vocabulary (ids go in as they are)."""
    layers, hidden, heads, kv_heads, ffn, vocab = SHAPES[shape]
    head_dim = hidden // heads
    random = np.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(f"random {shape}")
    writer.add_file_type(FILE_TYPES[type_name])
    writer.add_context_length(context)
    writer.add_embedding_length(hidden)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(ffn)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(head_dim)
    writer.add_vocab_size(vocab)
    writer.add_tokenizer_model("no_vocab")

    def matrix(name, rows, columns):
        values = random.standard_normal((rows, columns), dtype=np.float32)
        values *= 1.0 / np.sqrt(columns)
        if type_name == "F32":
            writer.add_tensor(name, values)
        elif type_name == "F16":
            writer.add_tensor(name, values.astype(np.float16))
        else:
            writer.add_tensor(name, gguf.quants.quantize(values, TYPES[type_name]), raw_dtype=TYPES[type_name])

    matrix("token_embd.weight", vocab, hidden)
    for layer in range(layers):
        p = f"blk.{layer}."
        writer.add_tensor(p + "attn_norm.weight", np.ones(hidden, np.float32))
        writer.add_tensor(p + "ffn_norm.weight", np.ones(hidden, np.float32))
        matrix(p + "attn_q.weight", hidden, hidden)
        matrix(p + "attn_k.weight", kv_heads * head_dim, hidden)
        matrix(p + "attn_v.weight", kv_heads * head_dim, hidden)
        matrix(p + "attn_output.weight", hidden, hidden)
        matrix(p + "ffn_gate.weight", ffn, hidden)
        matrix(p + "ffn_up.weight", ffn, hidden)
        matrix(p + "ffn_down.weight", hidden, ffn)
    writer.add_tensor("output_norm.weight", np.ones(hidden, np.float32))
    matrix("output.weight", vocab, hidden)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


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


def machine():
    info = pathlib.Path("/proc/cpuinfo").read_text()
    name = next((line.split(":", 1)[1].strip() for line in info.splitlines() if line.startswith("model name")), platform.machine())
    flags = next((line.split(":", 1)[1].split() for line in info.splitlines() if line.startswith("flags")), [])
    memory = next(line.split()[1] for line in open("/proc/meminfo") if line.startswith("MemTotal"))
    return {"cpu": name, "cores": os.cpu_count(), "memory_gib": int(memory) >> 20,
            "isa": [f for f in ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "amx_int8") if f in flags]}


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
    folder = ROOT / "build" / "peers"
    folder.mkdir(parents=True, exist_ok=True)
    load_before = os.getloadavg()[0]
    results = []
    for name in options.types:
        path = folder / f"{options.shape}-{name}.gguf"
        if not path.is_file():
            print(f"writing {path.name}", file=sys.stderr)
            partial = path.with_suffix(".partial")
            write_model(partial, options.shape, name, 4096)
            partial.rename(path)
        print(f"measuring {path.name}", file=sys.stderr)
        results += measure(path, name, options)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    text = json.dumps({
        "program": "llama.cpp through llama-cpp-python", "version": llama_cpp.__version__,
        "system": llama_cpp.llama_print_system_info().decode(), "tandem_commit": commit,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "machine": machine(),
        "load_average": {"before": load_before, "after": os.getloadavg()[0]}, "shape": options.shape, "threads": options.threads,
        "rounds": options.rounds, "results": results}, indent=1)
    if options.output == "-":
        print(text)
    else:
        pathlib.Path(options.output).write_text(text + "\n")


if __name__ == "__main__":
    main()
