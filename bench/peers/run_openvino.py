#!/usr/bin/env python3
"""Measures OpenVINO GenAI on this machine's CPU with a random-weight Llama and prints JSON, to be read beside Tandem's own numbers.

Usage: build/peers-venv/bin/python bench/peers/run_openvino.py [--type F16] [--backend SDPA] [--shape 1.1B] [--threads 2]
           [--prompt 1024] [--batches 1,8,32] [--steps 32] [--rounds 3] [-o FILE]
  Needs bench/peers/install.sh. The model is read from a GGUF file that is written once to build/peers (2.2 GB for F16).
  Progress goes to stderr.

What is measured, each as the median of --rounds, with greedy choice of tokens and no end token:
  ttft   from the call to the first tokens, ms
  tpot   ms from a sequence's token to its next, in batches of sequences with own prompts of --prompt tokens, over --steps tokens
Both from the library's own records. With weights of 16 bits OpenVINO computes in bfloat16 where the CPU can, unless
told otherwise; the record says which type it chose.
"""
import argparse
import os
import statistics
import sys

import numpy as np
import openvino
import openvino_genai

from random_gguf import SHAPES, TYPES, model_file
from report import write_report


def prompts(count, tokens, first):
    """Fixed ids, other ones for each sequence and round."""
    ids = np.fromiter((5 + (i * 7 + s * 13 + first * 29) % 250 for s in range(count) for i in range(tokens)), np.int64)
    ids = ids.reshape(count, tokens)
    return openvino_genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(np.ones_like(ids)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda text: [int(part) for part in text.split(",")]
    parser.add_argument("--type", choices=TYPES, default="F16")
    parser.add_argument("--backend", choices=("SDPA", "PA"), default="SDPA")
    parser.add_argument("--shape", choices=SHAPES, default="1.1B")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=1024)
    parser.add_argument("--batches", type=numbers, default=[1, 8, 32])
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-o", "--output", default="-")
    options = parser.parse_args()

    load_before = os.getloadavg()[0]
    properties = {"INFERENCE_NUM_THREADS": options.threads, "ATTENTION_BACKEND": options.backend}
    pipeline = openvino_genai.LLMPipeline(str(model_file(options.shape, options.type)), "CPU", **properties)
    config = openvino_genai.GenerationConfig(max_new_tokens=options.steps, min_new_tokens=options.steps, ignore_eos=True,
                                             do_sample=False, apply_chat_template=False)
    results = []
    for batch in options.batches:
        first_ms, token_ms = [], []
        warm_up = 1 if batch == options.batches[0] else 0
        for round_ in range(-warm_up, options.rounds):
            metrics = pipeline.generate(prompts(batch, options.prompt, round_ + 1), config).perf_metrics
            times = metrics.raw_metrics.m_new_token_times  # of each step's end; the library's TPOT is divided by the batch
            if round_ >= 0:
                first_ms.append(metrics.get_ttft().mean)
                token_ms.append((times[-1] - times[0]) / (len(times) - 1))
        results.append({"weights": options.type, "batch": batch, "prompt_tokens": options.prompt, "steps": options.steps,
                        "ttft_ms": round(statistics.median(first_ms), 1), "tpot_ms": round(statistics.median(token_ms), 2),
                        "ttft_samples": first_ms, "tpot_samples": token_ms})
        print(f"  {options.type} batch {batch}: first token {results[-1]['ttft_ms']} ms, then {results[-1]['tpot_ms']} ms a token",
              file=sys.stderr)
    peer = {"program": "OpenVINO GenAI", "version": openvino_genai.__version__, "runtime": openvino.get_version(),
            "inference_type": str(openvino.Core().get_property("CPU", "INFERENCE_PRECISION_HINT")), "backend": options.backend}
    write_report(peer, options, load_before, results)


if __name__ == "__main__":
    main()
