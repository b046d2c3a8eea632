"""The operations of `tandem bench kernels --device` by PyTorch, on the same shapes and by the same method: many launches in a row over
more weights or KV than the GPU's cache holds, medians of several passes. Prints one line of JSON for each operation as it is measured, and
a last line with the ceilings. Needs torch with CUDA; --device cpu --tiny tries it without a GPU.
Usage: peers.py [--device cuda|cpu] [--quick | --tiny] [--limit SECONDS] [--only TEXT]"""
import argparse
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as functional

# hidden, intermediate, heads, kv heads, head dim, vocabulary: as src/model/make.cc has them.
SHAPES = {"8B": (4096, 14336, 32, 8, 128, 128256), "34B": (7168, 20480, 56, 8, 128, 64000), "tiny": (256, 512, 8, 4, 32, 1024)}


class Bench:
    def __init__(self, options):
        self.options = options
        self.cuda = options.device.startswith("cuda")
        self.pass_seconds = 0.0 if options.tiny else 5e-3 if options.quick else 20e-3
        self.rotated_bytes = 1 << 20 if options.tiny else 512 << 20
        self.end = time.monotonic() + options.limit if options.limit else None
        self.copy_rate = self.peak = 0.0

    def random(self, *size):
        return torch.empty(*size, dtype=torch.bfloat16, device=self.options.device).uniform_(-1, 1)

    def copies(self, bytes_each):
        return max(1, min(256, self.rotated_bytes // bytes_each))

    def synchronize(self):
        if self.cuda:
            torch.cuda.synchronize()

    def run(self, calls, launches, first):
        self.synchronize()
        begin = time.perf_counter()
        for i in range(first, first + launches):
            calls[i % len(calls)]()
        self.synchronize()
        return time.perf_counter() - begin

    def seconds(self, calls):
        """Of one call."""
        launches, done = 1, 1
        self.run(calls, 1, 0)
        taken = self.run(calls, 1, 1)
        while taken < self.pass_seconds and launches < 20000:
            launches = int(min(1.1 * self.pass_seconds / max(taken, 1e-7) * launches + 1, 20 * launches, 20000))
            taken = self.run(calls, launches, done)
            done += launches
        return statistics.median([taken / launches] + [self.run(calls, launches, i) / launches for i in range(1 if self.options.tiny else 4)])

    def measure(self, row, bytes_moved, operations, make):
        if self.options.only not in row["op"] or (self.end and time.monotonic() > self.end):
            return
        try:
            taken = self.seconds(make())
        except RuntimeError as error:  # out of memory, or a backend that refuses the shape
            print(json.dumps(row | {"error": str(error).splitlines()[0]}), flush=True)
            return
        finally:
            if self.cuda:
                torch.cuda.empty_cache()
        self.report(row, bytes_moved, operations, taken)

    def report(self, row, bytes_moved, operations, taken):
        found = row | {"seconds": taken, "gb_per_s": bytes_moved / taken * 1e-9, "tflop_per_s": operations / taken * 1e-12}
        ceiling = max(bytes_moved / self.copy_rate if self.copy_rate else 0, operations / self.peak if self.peak else 0)
        if ceiling:
            found["share_of_ceiling"] = ceiling / taken
        print(json.dumps(found), flush=True)

    def ceilings(self):
        size = (8 << 20) if self.options.tiny else (2 << 30)
        side = 256 if self.options.tiny else 8192
        source, target = (torch.empty(size, dtype=torch.uint8, device=self.options.device) for _ in range(2))
        taken = self.seconds([lambda: target.copy_(source)])
        self.copy_rate = 2 * size / taken
        self.report({"op": "copy on the device", "rows": size}, 2 * size, 0, taken)
        del source, target
        x, w = self.random(side, side), self.random(side, side)
        taken = self.seconds([lambda: torch.matmul(x, w.t())])
        self.peak = 2 * side**3 / taken
        self.report({"op": "gemm square", "rows": side}, 6 * side**2, 2 * side**3, taken)

    def products(self, name, rows_list):
        hidden, intermediate, heads, kv_heads, dim, vocabulary = SHAPES[name]
        for op, n, k in (("qkv", (heads + 2 * kv_heads) * dim, hidden), ("out", hidden, heads * dim), ("gate_up", 2 * intermediate, hidden),
                         ("down", hidden, intermediate), ("head", vocabulary, hidden)):
            for rows in rows_list:
                if op == "head" and rows > 256:
                    continue

                def make(n=n, k=k, rows=rows):
                    x, y = self.random(rows, k), self.random(rows, n)
                    weights = [self.random(n, k) for _ in range(self.copies(2 * n * k))]
                    return [lambda w=w: torch.matmul(x, w.t(), out=y) for w in weights]

                self.measure({"op": f"gemm {op}", "shape": name, "rows": rows}, 2 * (n * k + rows * (n + k)), 2 * rows * n * k, make)

    def attention(self, name, batches, contexts, prompts):
        """Contiguous KV, not blocks: what an SDPA kernel gets at best. Decode is SDPA's own choice, prefill FlashAttention."""
        _, _, heads, kv_heads, dim, _ = SHAPES[name]
        grouped = {"enable_gqa": True}
        for batch in batches:
            for context in contexts:
                kv_bytes = batch * context * 2 * kv_heads * dim * 2

                def make(batch=batch, context=context, kv_bytes=kv_bytes):
                    q = self.random(batch, heads, 1, dim)
                    kv = [self.random(2, batch, kv_heads, context, dim) for _ in range(self.copies(kv_bytes))]
                    return [lambda each=each: functional.scaled_dot_product_attention(q, each[0], each[1], **grouped) for each in kv]

                self.measure({"op": "attention decode", "shape": name, "rows": batch, "context": context},
                             kv_bytes + batch * heads * dim * 4, 4 * batch * context * heads * dim, make)
        for prompt in prompts:

            def make(prompt=prompt):
                q, k, v = self.random(1, heads, prompt, dim), self.random(1, kv_heads, prompt, dim), self.random(1, kv_heads, prompt, dim)

                def attend():
                    return functional.scaled_dot_product_attention(q, k, v, is_causal=True, **grouped)

                if not self.cuda:
                    return [attend]
                from torch.nn.attention import SDPBackend, sdpa_kernel

                def attend_flash():
                    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                        return attend()

                return [attend_flash]

            self.measure({"op": "attention prefill", "shape": name, "rows": prompt, "context": prompt},
                         prompt * (2 * kv_heads + 2 * heads) * dim * 2, 2 * prompt * (prompt + 1) * heads * dim, make)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--limit", type=float, default=0.0)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        print("peers.py: torch finds no GPU", file=sys.stderr)
        return 1
    bench = Bench(options)
    bench.ceilings()
    if options.tiny:
        names, rows, attention = ["tiny"], [1, 16], ([1, 4], [64], [64])
    elif options.quick:
        names, rows, attention = ["8B"], [1, 64, 4096], ([1, 16, 64], [2048, 8192], [4096])
    else:
        names, rows, attention = ["8B", "34B"], [1, 16, 64, 256, 2048, 4096], ([1, 16, 64, 128], [512, 2048, 8192], [1024, 4096, 8192])
    for name in names:
        bench.attention(name, *attention)
        bench.products(name, rows)
    device = torch.cuda.get_device_name() if bench.cuda else "cpu"
    print(json.dumps({"ceilings": {"gb_per_s": bench.copy_rate * 1e-9, "tflop_per_s": bench.peak * 1e-12},
                      "device": f"{device}, torch {torch.__version__}"}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
