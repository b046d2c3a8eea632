#!/usr/bin/env python3
"""Measures OpenVINO GenAI on this machine's CPU with a random-weight Llama and prints JSON, to be read beside Tandem's own numbers.

Usage: build/peers-venv/bin/python bench/peers/run_openvino.py [--backend PA] [--kv bf16] [--mlp fused] [--weights F16] [--shape 1.1B] [--threads 2]
           [--prompt 1024] [--batches 1,8,32] [--steps 32] [--rounds 3] [-o FILE]
  Needs bench/peers/install.sh. The model (openvino_model.py) is written once to build/peers: 2.2 GB, a minute.
  --backend  PA: paged attention, the library's own choice on such a CPU; SDPA: one attention operation over each sequence's state
  --kv       type of K and V; the library's own choice is u8, Tandem's bf16
  --mlp      fused or apart, see openvino_model.py
  --weights  F16, int8 or int4, see openvino_model.py
  Progress goes to stderr.

What is measured, each as the median of --rounds, with greedy choice of tokens and no end token, after one round that does not count:
  ttft   from the call to the first tokens, ms
  tpot   ms from a sequence's token to its next, in batches of sequences with own random prompts of --prompt tokens, over --steps tokens
Both from the library's own records. F16 weights: OpenVINO computes in bfloat16 where the CPU can and packs them in
that type when they are first used; the record says which type it chose.
"""
import argparse
import os
import statistics
import sys

import numpy as np
import openvino
import openvino_genai

from openvino_model import MLPS, SHAPES, WEIGHTS, model_folder
from report import write_report

END_TOKEN = 2  # the model folder names none; `ignore_eos` keeps it from ending anything


def prompts(random, count, tokens, vocab):
    """Other ids for each sequence and round, so that no cached prefix helps."""
    ids = random.integers(3, vocab, (count, tokens), np.int64)
    return openvino_genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(np.ones_like(ids)))


def generation(steps):
    return openvino_genai.GenerationConfig(max_new_tokens=steps, min_new_tokens=steps, ignore_eos=True, eos_token_id=END_TOKEN,
                                           stop_token_ids={END_TOKEN}, do_sample=False, apply_chat_template=False)


def measure(pipeline, inputs, steps):
    """First token and each further one, ms."""
    metrics = pipeline.generate(inputs, generation(steps)).perf_metrics
    times = metrics.raw_metrics.m_new_token_times  # of each step's end; the library's TPOT is divided by the batch
    if len(times) != steps:
        sys.exit(f"run_openvino: {len(times)} steps instead of {steps}: the library's records are not what this script takes them for")
    return metrics.get_ttft().mean, (times[-1] - times[0]) / (steps - 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda text: [int(part) for part in text.split(",")]
    parser.add_argument("--backend", choices=("PA", "SDPA"), default="PA")
    parser.add_argument("--kv", choices=("bf16", "f16", "u8"), default="bf16")
    parser.add_argument("--mlp", choices=MLPS, default="fused")
    parser.add_argument("--weights", choices=WEIGHTS, default="F16")
    parser.add_argument("--shape", choices=SHAPES, default="1.1B")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=1024)
    parser.add_argument("--batches", type=numbers, default=[1, 8, 32])
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-o", "--output", default="-")
    options = parser.parse_args()
    if options.steps < 2 or options.rounds < 1 or options.prompt < 1 or min(options.batches) < 1:
        parser.error("--steps must be at least 2, the other counts at least 1")

    load_before = os.getloadavg()[0]
    properties = {"INFERENCE_NUM_THREADS": options.threads, "ATTENTION_BACKEND": options.backend, "KV_CACHE_PRECISION": options.kv}
    pipeline = openvino_genai.LLMPipeline(str(model_folder(options.shape, options.mlp, options.weights)), "CPU", **properties)
    random = np.random.default_rng(1)
    vocab = SHAPES[options.shape][-1]
    results = []
    for batch in options.batches:
        measure(pipeline, prompts(random, batch, options.prompt, vocab), 4)  # packs the weights, makes the kernels of this shape
        samples = [measure(pipeline, prompts(random, batch, options.prompt, vocab), options.steps) for _ in range(options.rounds)]
        first_ms, token_ms = zip(*samples)
        results.append({"weights": options.weights, "kv": options.kv, "mlp": options.mlp, "batch": batch, "prompt_tokens": options.prompt,
                        "steps": options.steps, "ttft_ms": round(statistics.median(first_ms), 1), "tpot_ms": round(statistics.median(token_ms), 2),
                        "ttft_samples": first_ms, "tpot_samples": token_ms})
        print(f"  batch {batch}: first token {results[-1]['ttft_ms']} ms, then {results[-1]['tpot_ms']} ms a token", file=sys.stderr)
    peer = {"program": "OpenVINO GenAI", "version": openvino_genai.__version__, "runtime": openvino.get_version(),
            "inference_type": openvino.Core().get_property("CPU", "INFERENCE_PRECISION_HINT").to_string(), "backend": options.backend}
    write_report(peer, options, load_before, results)


if __name__ == "__main__":
    main()
