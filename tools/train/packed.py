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
from model import Layer, Llama, Shape, rotate
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
    edges: np.ndarray  # the same values
    max_length: int


# Causal attention of each conversation to itself: queries [tokens, heads, head_dim], keys and values [tokens, kv_heads, head_dim].
Attention = Callable[[Tensor, Tensor, Tensor, Spans], Tensor]


def product(x: Tensor, weight: Tensor, precision: Precision) -> Tensor:
    return F.linear(x.to(precision.products), weight.to(precision.products)).to(precision.between)


def enter(x: Tensor, rope: Rope, weights: tuple[Tensor, ...], shape: Shape, precision: Precision) -> tuple[Tensor, Tensor, Tensor]:
    """From the residual stream [tokens, hidden] to queries, keys and values."""
    norm, q_proj, k_proj, v_proj = weights
    joined = product(normalize(x, norm, shape), torch.cat((q_proj, k_proj, v_proj)), precision)
    rotated, values = joined.view(x.shape[0], -1, shape.head_dim).split((shape.heads + shape.kv_heads, shape.kv_heads), dim=1)
    queries, keys = rotate(rotated, *rope).to(joined.dtype).split((shape.heads, shape.kv_heads), dim=1)
    return queries, keys, values


def normalize(x: Tensor, weight: Tensor, shape: Shape) -> Tensor:
    return F.rms_norm(x, (shape.hidden,), weight, shape.norm_epsilon)


def leave(x: Tensor, attended: Tensor, weights: tuple[Tensor, ...], shape: Shape, precision: Precision) -> Tensor:
    """From the output of the attention back to the residual stream, and through the MLP."""
    o_proj, norm, gate_proj, up_proj, down_proj = weights
    x = x + product(attended.flatten(1), o_proj, precision)
    gate, up = product(normalize(x, norm, shape), torch.cat((gate_proj, up_proj)), precision).chunk(2, dim=-1)
    return x + product(F.silu(gate) * up, down_proj, precision)


def cross(x: Tensor, attended: Tensor, rope: Rope, leaving: tuple[Tensor, ...], entering: tuple[Tensor, ...], shape: Shape,
          precision: Precision) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The second half of a layer and the first half of the next."""
    x = leave(x, attended, leaving, shape, precision)
    return x, *enter(x, rope, entering, shape, precision)


def finish(x: Tensor, attended: Tensor, targets: Tensor, weights: Tensor, leaving: tuple[Tensor, ...], norm: Tensor, embedding: Tensor,
           shape: Shape, precision: Precision) -> Tensor:
    """The second half of the last layer and the weighted loss, for the learned tokens alone."""
    states = normalize(leave(x, attended, leaving, shape, precision), norm, shape)
    logits = product(states, embedding, precision).float()
    return (F.cross_entropy(logits, targets, reduction="none") * weights).sum()


def flash(queries: Tensor, keys: Tensor, values: Tensor, spans: Spans) -> Tensor:
    """The kernel for conversations of different lengths; CUDA, bfloat16. The operation under PyTorch's
    `varlen_attn`, whose arguments differ between releases."""
    return torch.ops.aten._flash_attention_forward(queries, keys, values, spans.starts, spans.starts, spans.max_length, spans.max_length, 0.0,
                                                   True, False)[0]


def grouped(queries: Tensor, keys: Tensor, values: Tensor, spans: Spans) -> Tensor:
    """Anywhere: neighbours of similar length are padded to one length and computed together."""
    share = queries.shape[1] // keys.shape[1]
    keys, values = keys.repeat_interleave(share, dim=1), values.repeat_interleave(share, dim=1)
    outs, edges = [], np.unique(spans.edges)  # without empty conversations
    for first, last in similar(np.diff(edges)):
        begins, lengths = edges[first:last], np.diff(edges[first : last + 1])
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


@dataclasses.dataclass(frozen=True)
class Row:
    """A batch on the device; see data.Batch."""

    tokens: Tensor
    positions: Tensor
    starts: Tensor
    chosen: Tensor
    targets: Tensor
    weights: Tensor


class PackedLoss:
    """Computes the loss of batches with a model's weights."""

    def __init__(self, model: Llama, precision: Precision, attention: Attention, compiled: bool) -> None:
        self.model, self.precision, self.attention = model, precision, attention
        self.entering = [(layer.input_layernorm.weight, layer.self_attn.q_proj.weight, layer.self_attn.k_proj.weight,
                          layer.self_attn.v_proj.weight) for layer in model.layers]
        self.leaving = [after_attention(layer) for layer in model.layers]
        self.enter, self.cross, self.finish = enter, cross, finish
        # Compiled code computes the rotation in float32 at no cost.
        self.rope_type = torch.float32 if compiled else precision.between
        if compiled:
            self.enter, self.cross, self.finish = (torch.compile(function) for function in (enter, cross, finish))

    def __call__(self, row: Row, edges: np.ndarray, max_length: int) -> Tensor:
        model, shape, precision = self.model, self.model.shape, self.precision
        spans, positions = Spans(row.starts, edges, max_length), row.positions.int()
        rope = tuple(table.to(self.rope_type).index_select(0, positions)[:, None] for table in (model.cosine, model.sine))
        x = F.embedding(row.tokens.int(), model.embed_tokens.weight)
        attended = self.attention(*self.enter(x, rope, self.entering[0], shape, precision), spans)
        for leaving, entering in zip(self.leaving, self.entering[1:]):
            x, *projected = self.cross(x, attended, rope, leaving, entering, shape, precision)
            attended = self.attention(*projected, spans)
        return self.finish(x.index_select(0, row.chosen), attended.index_select(0, row.chosen), row.targets.long(), row.weights,
                           self.leaving[-1], model.norm.weight, model.embed_tokens.weight, shape, precision)


class Gradients:
    """Called with a batch: adds its gradients to the gradients of the parameters, and returns its loss."""

    def __init__(self, loss: PackedLoss) -> None:
        self.loss = loss
        self.device = loss.model.embed_tokens.weight.device

    def __call__(self, batch: data.Batch) -> Tensor:
        row = Row(*(torch.from_numpy(array).to(self.device) for array in arrays(batch)))
        loss = self.loss(row, batch.starts, int(np.diff(batch.starts).max()))
        loss.backward()
        return loss.detach()


class GraphGradients:
    """The same on a GPU for batches of fixed sizes: the work is recorded once as a CUDA graph and replayed, so that the time to launch
    hundreds of kernels does not count. The gradients replace earlier gradients instead of being added."""

    def __init__(self, loss: PackedLoss, example: data.Batch, max_length: int) -> None:
        self.device = loss.model.embed_tokens.weight.device
        self.parameters = list(loss.model.parameters())
        self.row = Row(*(torch.from_numpy(array).to(self.device) for array in arrays(example)))
        current, side = torch.cuda.current_stream(), torch.cuda.Stream()
        side.wait_stream(current)
        with torch.cuda.stream(side):  # compiles, and allocates what libraries keep
            for _ in range(3):
                loss.model.zero_grad(set_to_none=True)
                loss(self.row, example.starts, max_length).backward()
        current.wait_stream(side)
        loss.model.zero_grad(set_to_none=True)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            result = loss(self.row, example.starts, max_length)
            result.backward()
        self.result = result.detach()  # keeps nothing of autograd alive, which remembers the stream of the recording
        self.gradients = [parameter.grad for parameter in self.parameters]

    def __call__(self, batch: data.Batch) -> Tensor:
        for name, array in zip(Row.__dataclass_fields__, arrays(batch)):
            getattr(self.row, name).copy_(torch.from_numpy(array).pin_memory(), non_blocking=True)
        self.graph.replay()
        for parameter, gradient in zip(self.parameters, self.gradients):
            parameter.grad = gradient
        return self.result.clone()


def after_attention(layer: Layer) -> tuple[Tensor, ...]:
    mlp = layer.mlp
    return (layer.self_attn.o_proj.weight, layer.post_attention_layernorm.weight, mlp.gate_proj.weight, mlp.up_proj.weight,
            mlp.down_proj.weight)


def arrays(batch: data.Batch) -> list[np.ndarray]:
    return [getattr(batch, name) for name in Row.__dataclass_fields__]
