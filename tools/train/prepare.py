#!/usr/bin/env python3
"""Chooses the fastest way to compute gradients that works on this machine, and proves it on made-up batches before training uses it.

On a GPU training begins at once without compilation. Meanwhile this file, as a program, compiles the same functions in another process,
which leaves the result in PyTorch's cache on disk; then training compiles them from there in seconds.

Usage: tools/train/prepare.py RECIPE
"""
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import data
import numpy as np
import packed
import torch
from model import Llama, Shape
from recipe import RECIPES, Limits, Recipe, Stage

COMPILE_SECONDS = 12  # that training may stop for compilation with a filled cache
TOLERANCE = 0.03  # of the largest value; bfloat16 rounds to 0.004
Say = Callable[[str], None]
Compute = Callable[[data.Batch], torch.Tensor]


@contextlib.contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    def expired(*_: object) -> None:
        raise TimeoutError(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, expired)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def made_up(tokens: int, limits: Limits | None, vocabulary: int, seed: int = 1) -> data.Batch:
    """A batch of conversations of random tokens."""
    rng = np.random.default_rng(seed)
    row, room = [], tokens
    while room >= 80 and (limits is None or len(row) + 1 < limits.conversations):
        length = int(rng.integers(40, 80))
        room -= length
        row.append((rng.integers(1, vocabulary, size=length).tolist(), [(length - 10, length)]))
    return data.to_batches([row], tokens, limits)[0]


def attention_error(device: torch.device, shape: Shape) -> float:
    """How far flash and grouped attention and their gradients differ, as a part of the largest value."""
    batch = made_up(4096, Limits(80, 2000, 1000), shape.vocabulary)
    spans = packed.Spans(torch.from_numpy(batch.starts).to(device), batch.starts, 1000)
    generator = torch.Generator(device).manual_seed(1)
    made = [torch.randn(4096, heads, shape.head_dim, device=device, generator=generator).bfloat16()
            for heads in (shape.heads, shape.kv_heads, shape.kv_heads, shape.heads)]
    results = []
    for attention in (packed.flash, packed.grouped):
        inputs = [tensor.clone().requires_grad_() for tensor in made[:3]]
        out = attention(*inputs, spans)
        results.append([out.detach(), *torch.autograd.grad(out, inputs, made[3])])
    return max(float((one.float() - other.float()).abs().max() / other.float().abs().max()) for one, other in zip(*results))


def choose_attention(model: Llama, say: Say) -> packed.Attention:
    device = model.embed_tokens.weight.device
    if device.type != "cuda":
        return packed.grouped
    try:
        error = attention_error(device, model.shape)
        if error < TOLERANCE:
            return packed.flash
        say(f"flash attention is wrong here (error {error:.3g}); using the slower attention")
    except (RuntimeError, TypeError, NotImplementedError) as problem:
        say(f"flash attention does not work here; using the slower attention: {problem}")
    return packed.grouped


def total_gradient(compute: Compute, batch: data.Batch, model: Llama) -> tuple[float, float]:
    model.zero_grad(set_to_none=True)
    loss = float(compute(batch))
    norm = float(torch.stack([parameter.grad.float().norm() for parameter in model.parameters()]).norm())
    model.zero_grad(set_to_none=True)
    return loss, norm


class Preparation:
    """The ways to compute gradients for the stages of a recipe."""

    def __init__(self, model: Llama, precision: packed.Precision, recipe: Recipe, say: Say) -> None:
        self.model, self.precision, self.recipe, self.say = model, precision, recipe, say
        self.attention = choose_attention(model, say)
        self.compiler: subprocess.Popen | None = None

    def example(self, stage: Stage, seed: int = 1) -> data.Batch:
        return made_up(stage.batch_tokens, stage.limits, self.model.shape.vocabulary, seed)

    def make(self, compiled: bool) -> dict[str, Compute]:
        """By stage. With CUDA graphs if they work and their loss and gradients are right. Raises whatever a compiler may raise."""
        started = time.monotonic()
        loss = packed.PackedLoss(self.model, self.precision, self.attention, compiled)
        plain = packed.Gradients(loss)
        ways: dict[str, Compute] = {stage.name: plain for stage in self.recipe.stages}
        if self.attention is packed.flash:
            try:
                ways = self.record(loss, plain)
            except Exception as problem:  # training without graphs is slower, and works
                if compiled:
                    raise  # what runs already is better
                self.say(f"CUDA graphs do not work here: {type(problem).__name__}: {str(problem)[:1000]}")
        for batch in [self.example(stage, seed) for stage in self.recipe.stages[:1] for seed in (1, 2) if compiled]:
            total_gradient(plain, batch, self.model)
        self.say(f"prepared in {time.monotonic() - started:.1f} s: compiled {compiled}, attention {self.attention.__name__}, "
                 f"graphs {any(way is not plain for way in ways.values())}")
        return ways

    def record(self, loss: packed.PackedLoss, plain: Compute) -> dict[str, Compute]:
        ways: dict[str, Compute] = {}
        recorded: dict[Limits, Compute] = {}
        for stage in self.recipe.stages:
            if stage.limits is None or stage.step_tokens != stage.batch_tokens:
                ways[stage.name] = plain
                continue
            if stage.limits not in recorded:
                way = packed.GraphGradients(loss, self.example(stage), stage.limits.length)
                (expected, expected_norm), (got, norm) = (total_gradient(each, self.example(stage, 2), self.model) for each in (plain, way))
                if not (abs(got - expected) < TOLERANCE * expected and abs(norm - expected_norm) < TOLERANCE * expected_norm):
                    raise RuntimeError(f"loss {got}, not {expected}, or gradient {norm}, not {expected_norm}")
                recorded[stage.limits] = way
            ways[stage.name] = recorded[stage.limits]
        return ways

    def start_compiling(self, name: str, log: pathlib.Path) -> None:
        """In another process. `name`: of the recipe."""
        with log.open("w") as file:
            self.compiler = subprocess.Popen([sys.executable, __file__, name], stdout=file, stderr=file, start_new_session=True)

    def compiled(self) -> dict[str, Compute] | None:
        """The compiled ways when the other process is done with success, once."""
        if self.compiler is None or self.compiler.poll() is None:
            return None
        code, self.compiler = self.compiler.returncode, None
        if code != 0:
            self.say(f"compilation failed with status {code}; training continues without")
            return None
        try:
            with time_limit(COMPILE_SECONDS):
                return self.make(compiled=True)
        except Exception as problem:
            self.say(f"compilation failed; training continues without: {type(problem).__name__}: {str(problem)[:1000]}")
            return None

    def close(self) -> None:
        if self.compiler is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.compiler.pid, signal.SIGKILL)


def main() -> None:
    device = torch.device("cuda")
    recipe = RECIPES[sys.argv[1]]
    preparation = Preparation(Llama(recipe.shape).to(device), packed.GPU, recipe, print)
    loss = packed.PackedLoss(preparation.model, packed.GPU, preparation.attention, compiled=True)
    started = time.monotonic()
    total_gradient(packed.Gradients(loss), preparation.example(recipe.stages[0]), preparation.model)
    print(f"compiled in {time.monotonic() - started:.1f} s")


if __name__ == "__main__":
    main()
