"""The Llama architecture in PyTorch, small enough to read: training, and greedy decoding with a KV cache for the evaluation.

Tensors are [batch, tokens, ...]; parameters have the names of a Hugging Face checkpoint, so that export is a plain copy.
"""
import dataclasses

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclasses.dataclass(frozen=True)
class Shape:
    """Sizes of a model; `context` is what the exported configuration promises."""

    vocabulary: int = 2048
    hidden: int = 256
    intermediate: int = 512
    layers: int = 6
    heads: int = 8
    kv_heads: int = 4
    context: int = 4096
    rope_theta: float = 10000.0
    norm_epsilon: float = 1e-5

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads


class Cache:
    """Keys and values of every layer, [batch, kv_heads, capacity, head_dim]; each row is written at its own position."""

    def __init__(self, shape: Shape, batch: int, capacity: int, like: Tensor) -> None:
        size = (batch, shape.kv_heads, capacity, shape.head_dim)
        self.keys = [torch.zeros(size, dtype=like.dtype, device=like.device) for _ in range(shape.layers)]
        self.values = [torch.zeros(size, dtype=like.dtype, device=like.device) for _ in range(shape.layers)]


# Keys, values and, for one token of each row, its position; of one layer.
Cached = tuple[Tensor, Tensor, Tensor | None]


class Linear(nn.Linear):
    """A product without bias."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)).to(x.dtype) * weight.to(x.dtype)


class RMSNorm(nn.Module):
    def __init__(self, size: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self.epsilon)


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotary position embedding; the two halves of a head form the pairs, as in Hugging Face checkpoints."""
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat((-second, first), dim=-1) * sine


class Attention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        kv_size = shape.kv_heads * shape.head_dim
        self.q_proj = Linear(shape.hidden, shape.hidden)
        self.k_proj = Linear(shape.hidden, kv_size)
        self.v_proj = Linear(shape.hidden, kv_size)
        self.o_proj = Linear(shape.hidden, shape.hidden)

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor], cached: Cached | None) -> Tensor:
        """Without positions in `cached`, x begins the sequences; with them it is one token of each."""
        batch, tokens, _ = x.shape
        queries, keys, values = (self.heads(projection(x)) for projection in (self.q_proj, self.k_proj, self.v_proj))
        queries, keys = rotate(queries, *rope).to(values.dtype), rotate(keys, *rope).to(values.dtype)
        if cached is not None and cached[2] is not None:
            all_keys, all_values, position = cached
            rows = torch.arange(batch, device=x.device)
            all_keys[rows, :, position], all_values[rows, :, position] = keys[:, :, 0], values[:, :, 0]
            visible = torch.arange(all_keys.shape[2], device=x.device)[None] <= position[:, None]
            out = self.attend(queries, all_keys, all_values, attn_mask=visible[:, None, None])
        else:
            if cached is not None:
                cached[0][:, :, :tokens], cached[1][:, :, :tokens] = keys, values
            out = self.attend(queries, keys, values, is_causal=True)
        return self.o_proj(out.transpose(1, 2).reshape(batch, tokens, -1))

    def heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], -1, self.shape.head_dim).transpose(1, 2)

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, **options: object) -> Tensor:
        share = self.shape.heads // self.shape.kv_heads
        keys, values = keys.repeat_interleave(share, dim=1), values.repeat_interleave(share, dim=1)
        return F.scaled_dot_product_attention(queries, keys, values, **options)


class MLP(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = Linear(shape.hidden, shape.intermediate)
        self.up_proj = Linear(shape.hidden, shape.intermediate)
        self.down_proj = Linear(shape.intermediate, shape.hidden)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(shape.hidden, shape.norm_epsilon)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = RMSNorm(shape.hidden, shape.norm_epsilon)
        self.mlp = MLP(shape)

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor], cached: Cached | None) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), rope, cached)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = RMSNorm(shape.hidden, shape.norm_epsilon)
        frequencies = shape.rope_theta ** (-torch.arange(0, shape.head_dim, 2).float() / shape.head_dim)
        angles = torch.outer(torch.arange(shape.context).float(), torch.cat((frequencies, frequencies)))
        self.register_buffer("cosine", angles.cos(), persistent=False)
        self.register_buffer("sine", angles.sin(), persistent=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                scale = 0.02 / (2 * shape.layers) ** 0.5 if name.endswith(("o_proj.weight", "down_proj.weight")) else 0.02
                nn.init.normal_(parameter, std=scale if parameter is self.embed_tokens.weight else 2 * scale)

    def hidden(self, tokens: Tensor, positions: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        """States after the last norm. `positions` [batch]: where the one token of each row stands; None: from 0 on."""
        if positions is None:
            rope = self.cosine[: tokens.shape[1]], self.sine[: tokens.shape[1]]
        else:
            rope = self.cosine[positions][:, None, None], self.sine[positions][:, None, None]
        x = self.embed_tokens(tokens)
        for index, layer in enumerate(self.layers):
            cached = None if cache is None else (cache.keys[index], cache.values[index], positions)
            x = layer(x, rope, cached)
        return self.norm(x)

    def logits(self, states: Tensor) -> Tensor:
        return F.linear(states, self.embed_tokens.weight)


@torch.no_grad()
def greedy(model: Llama, prompts: list[list[int]], most: int, end: int) -> list[list[int]]:
    """The greedy answer of each prompt, without the end token; at most `most` tokens."""
    device = model.embed_tokens.weight.device
    lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
    longest = int(lengths.max())
    tokens = torch.tensor([prompt + [0] * (longest - len(prompt)) for prompt in prompts], device=device)
    dtype = torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else model.embed_tokens.weight.dtype
    cache = Cache(model.shape, len(prompts), longest + most, torch.empty(0, dtype=dtype, device=device))
    states = model.hidden(tokens, cache=cache)
    rows = torch.arange(len(prompts), device=device)
    last, position = model.logits(states[rows, lengths - 1]).argmax(-1), lengths
    written, done = [last], last == end
    while len(written) < most and not bool(done.all()):
        last = model.logits(model.hidden(last[:, None], position, cache)[:, 0]).argmax(-1)
        written.append(last)
        done, position = done | (last == end), position + 1
    answers = torch.stack(written, dim=1).tolist()
    return [answer[: answer.index(end)] if end in answer else answer for answer in answers]
