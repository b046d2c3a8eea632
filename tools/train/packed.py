"""The training pass: the loss of a batch of packed conversations. Same arithmetic as model.py, arranged for speed on a GPU.

All tokens of a batch form one row, so that nothing is computed for padding and shapes never change. Three functions, each compiled
once for all layers, compute everything but the attention. The last layer's second half is computed only for the learned tokens.
"""
import dataclasses
from collections.abc import Callable

import data
import numpy as np
import torch
import torch.nn.functional as F
from model import Layer, Llama, Shape, rms_norm, rotate
from torch import Tensor

Rope = tuple[Tensor, Tensor]  # cosine and sine, [tokens, 1, head_dim]


@dataclasses.dataclass(frozen=True)
class Precision:
    """`products`: the type that inputs of matrix products are rounded to; `between`: the type of their results."""

    products: torch.dtype
    between: torch.dtype


GPU = Precision(torch.bfloat16, torch.bfloat16)
CPU = Precision(torch.bfloat16, torch.float32)  # a CPU with bfloat16 units multiplies several times as fast, but does all else in float32
EXACT = Precision(torch.float32, torch.float32)


@dataclasses.dataclass(frozen=True)
class Spans:
    """Where conversations begin in the row: on the device, and here."""

    starts: Tensor  # [conversations + 1], int32
    edges: np.ndarray  # the same
    longest: int


# Causal attention of each conversation to itself: queries [tokens, heads, head_dim], keys and values [tokens, kv_heads, head_dim].
Attention = Callable[[Tensor, Tensor, Tensor, Spans], Tensor]


def product(x: Tensor, weight: Tensor, precision: Precision) -> Tensor:
    return F.linear(x.to(precision.products), weight.to(precision.products)).to(precision.between)


def enter(x: Tensor, rope: Rope, weights: tuple[Tensor, ...], shape: Shape, precision: Precision) -> tuple[Tensor, Tensor, Tensor]:
    """From the residual stream [tokens, hidden] to queries, keys and values."""
    norm, q_proj, k_proj, v_proj = weights
    joined = product(rms_norm(x, norm, shape.norm_epsilon), torch.cat((q_proj, k_proj, v_proj)), precision)
    heads = joined.view(x.shape[0], -1, shape.head_dim)
    queries, keys, values = heads.split((shape.heads, shape.kv_heads, shape.kv_heads), dim=1)
    return rotate(queries, *rope).to(joined.dtype).contiguous(), rotate(keys, *rope).to(joined.dtype).contiguous(), values.contiguous()


def leave(x: Tensor, attended: Tensor, weights: tuple[Tensor, ...], shape: Shape, precision: Precision) -> Tensor:
    """From the output of the attention back to the residual stream, and through the MLP."""
    o_proj, norm, gate_proj, up_proj, down_proj = weights
    x = x + product(attended.flatten(1), o_proj, precision)
    gate, up = product(rms_norm(x, norm, shape.norm_epsilon), torch.cat((gate_proj, up_proj)), precision).chunk(2, dim=-1)
    return x + product(F.silu(gate) * up, down_proj, precision)


def cross(x: Tensor, attended: Tensor, rope: Rope, leaving: tuple[Tensor, ...], entering: tuple[Tensor, ...], shape: Shape,
          precision: Precision) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The second half of a layer and the first half of the next."""
    x = leave(x, attended, leaving, shape, precision)
    return x, *enter(x, rope, entering, shape, precision)


def finish(x: Tensor, attended: Tensor, targets: Tensor, weights: Tensor, leaving: tuple[Tensor, ...], norm: Tensor, embedding: Tensor,
           shape: Shape, precision: Precision) -> Tensor:
    """The second half of the last layer and the weighted loss, for the learned tokens alone."""
    states = rms_norm(leave(x, attended, leaving, shape, precision), norm, shape.norm_epsilon)
    logits = product(states, embedding, precision).float()
    return (F.cross_entropy(logits, targets, reduction="none") * weights).sum()


def flash(queries: Tensor, keys: Tensor, values: Tensor, spans: Spans) -> Tensor:
    """The kernel for conversations of different lengths; CUDA, bfloat16. The operation under PyTorch's
    `varlen_attn`, whose arguments differ between releases."""
    return torch.ops.aten._flash_attention_forward(queries, keys, values, spans.starts, spans.starts, spans.longest, spans.longest, 0.0,
                                                   True, False)[0]


def grouped(queries: Tensor, keys: Tensor, values: Tensor, spans: Spans) -> Tensor:
    """Anywhere: neighbours of similar length are padded to one length and computed together."""
    share = queries.shape[1] // keys.shape[1]
    keys, values = keys.repeat_interleave(share, dim=1), values.repeat_interleave(share, dim=1)
    outs = []
    for first, last in similar(np.diff(spans.edges)):
        begins, lengths = spans.edges[first:last], np.diff(spans.edges[first : last + 1])
        offsets = np.arange(lengths.max())
        real = offsets[None] < lengths[:, None]
        places = torch.from_numpy(np.where(real, begins[:, None] + offsets[None], begins[:, None])).to(queries.device)
        padded = (tensor[places].transpose(1, 2) for tensor in (queries, keys, values))  # [conversations, heads, length, head_dim]
        out = F.scaled_dot_product_attention(*padded, is_causal=True).transpose(1, 2)
        outs.append(out.flatten(0, 1)[torch.from_numpy(np.flatnonzero(real)).to(queries.device)])
    return torch.cat(outs)


def similar(lengths: np.ndarray) -> list[tuple[int, int]]:
    """Ranges of neighbours whose lengths lie between the length of the first and two thirds of that length."""
    ranges, first = [], 0
    for index in range(1, len(lengths) + 1):
        if index == len(lengths) or not 2 * lengths[first] <= 3 * lengths[index] <= 3 * lengths[first]:
            ranges.append((first, index))
            first = index
    return ranges


class PackedLoss:
    """Computes the loss of batches with a model's weights."""

    def __init__(self, model: Llama, precision: Precision, attention: Attention, compiled: bool) -> None:
        self.model, self.precision, self.attention = model, precision, attention
        self.entering = [(layer.input_layernorm.weight, layer.self_attn.q_proj.weight, layer.self_attn.k_proj.weight,
                          layer.self_attn.v_proj.weight) for layer in model.layers]
        self.leaving = [after_attention(layer) for layer in model.layers]
        self.enter, self.cross, self.finish = enter, cross, finish
        if compiled:  # rows have one length; only the number of learned tokens changes
            self.enter, self.cross = torch.compile(enter, dynamic=False), torch.compile(cross, dynamic=False)
            self.finish = torch.compile(finish, dynamic=True)

    def __call__(self, batch: data.Batch) -> Tensor:
        model, shape, precision = self.model, self.model.shape, self.precision
        device = model.embed_tokens.weight.device
        tokens, positions, starts, chosen, targets, weights = (
            to_device(array, device) for array in (batch.tokens, batch.positions, batch.starts, batch.chosen, batch.targets, batch.weights))
        spans = Spans(starts, batch.starts, int(np.diff(batch.starts).max()))
        positions = positions.int()
        rope = model.cosine.index_select(0, positions)[:, None], model.sine.index_select(0, positions)[:, None]
        x = F.embedding(tokens.int(), model.embed_tokens.weight)
        attended = self.attention(*self.enter(x, rope, self.entering[0], shape, precision), spans)
        for leaving, entering in zip(self.leaving, self.entering[1:]):
            x, *projected = self.cross(x, attended, rope, leaving, entering, shape, precision)
            attended = self.attention(*projected, spans)
        return self.finish(x.index_select(0, chosen), attended.index_select(0, chosen), targets.long(), weights, self.leaving[-1],
                           model.norm.weight, model.embed_tokens.weight, shape, precision)


def after_attention(layer: Layer) -> tuple[Tensor, ...]:
    mlp = layer.mlp
    return (layer.self_attn.o_proj.weight, layer.post_attention_layernorm.weight, mlp.gate_proj.weight, mlp.up_proj.weight,
            mlp.down_proj.weight)


def to_device(array: np.ndarray, device: torch.device) -> Tensor:
    """From pinned memory, so that the copy does not wait for the work that is queued."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor
