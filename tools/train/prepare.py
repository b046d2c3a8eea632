"""Chooses the fastest way to compute the loss that works on this machine, before training begins: tries it on made-up batches."""
import contextlib
import signal
import time
from collections.abc import Callable, Iterator

import data
import numpy as np
import packed
import torch
from model import Llama
from recipe import Stage

COMPILE_SECONDS = 100  # then training continues without compilation
TOLERANCE = 0.02  # of the largest value; bfloat16 rounds to 0.004
Say = Callable[[str], None]


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


def made_up(tokens: int, vocabulary: int, seed: int, longest: int = 60) -> data.Batch:
    rng = np.random.default_rng(seed)
    starts = [0]
    while starts[-1] < tokens:
        starts.append(min(tokens, starts[-1] + int(rng.integers(min(20, longest - 1), longest))))
    edges = np.array(starts, dtype=np.int32)
    positions = np.arange(tokens, dtype=np.int32) - np.repeat(edges[:-1], np.diff(edges))
    chosen = np.sort(rng.choice(tokens - 1, size=tokens // 3 + 37 * seed, replace=False)).astype(np.int32)
    ids = rng.integers(vocabulary, size=tokens).astype(np.int16)
    weights = np.full(len(chosen), 1 / len(chosen), dtype=np.float32)
    return data.Batch(ids, positions.astype(np.int16), edges, chosen, ids[chosen + 1], weights)


def attention_error(device: torch.device, shape: "object") -> float:
    """How far flash and grouped attention and their gradients lie apart, as a part of the largest value."""
    batch = made_up(2048, shape.vocabulary, seed=1, longest=300)
    spans = packed.Spans(torch.from_numpy(batch.starts).to(device), batch.starts, int(np.diff(batch.starts).max()))
    torch.manual_seed(1)
    made = [torch.randn(2048, heads, shape.head_dim, device=device, dtype=torch.bfloat16)
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
    random_state = torch.random.get_rng_state()
    try:
        error = attention_error(device, model.shape)
        if error < TOLERANCE:
            return packed.flash
        say(f"flash attention is wrong here (error {error:.3g}); using the slower one")
    except (RuntimeError, TypeError, NotImplementedError) as problem:
        say(f"flash attention does not work here; using the slower one: {problem}")
    finally:
        torch.random.set_rng_state(random_state)
    return packed.grouped


def prepare(model: Llama, precision: packed.Precision, compiled: bool, stages: tuple[Stage, ...], say: Say) -> packed.PackedLoss:
    attention = choose_attention(model, say)
    if compiled:
        started = time.monotonic()
        try:
            loss = packed.PackedLoss(model, precision, attention, compiled=True)
            with time_limit(COMPILE_SECONDS):
                for batch_tokens in sorted({stage.batch_tokens for stage in stages}):
                    for seed in (1, 2):
                        loss(made_up(batch_tokens, model.shape.vocabulary, seed)).backward()
            if model.embed_tokens.weight.is_cuda:
                torch.cuda.synchronize()
            say(f"compiled in {time.monotonic() - started:.0f} s; attention: {attention.__name__}")
            return loss
        except Exception as problem:  # whatever a compiler may raise: training without it is slower, and works
            say(f"compilation failed, going on without: {type(problem).__name__}: {str(problem)[:2000]}")
        finally:
            model.zero_grad(set_to_none=True)
    return packed.PackedLoss(model, precision, attention, compiled=False)
