#!/usr/bin/env python3
"""A random-weight Llama as an OpenVINO model, laid out as OpenVINO's own exports are: stateful (K and V are variables, beam_idx chooses
their rows), attention one operation, weights in F16 marked for decompression, so that the CPU plugin fuses and packs them when it loads.

Usage: build/peers-venv/bin/python bench/peers/openvino_model.py [--shape 1.1B] [--mlp fused] [--weights F16]
  Writes build/peers/SHAPE-WEIGHTS-openvino-MLP/openvino_model.{xml,bin} if it is not there: 2.2 GB for 1.1B in F16, which takes 6 GB of memory and a
  minute. run_openvino.py does it by itself.
  --mlp  fused: gate, up and down in the form that the CPU plugin makes one operation of, as in an export of a Llama;
         apart: SiLU in a form with a parameter, which it leaves as three products
  --weights  F16, or int8 or int4 as OpenVINO's exports have them, compressed by its own library (NNCF): int8 for each row; int4 in groups of
         128, with the embeddings and the head in int8; both with zero points
"""
import argparse
import shutil
import sys

import nncf
import numpy as np
import openvino
from openvino import Model, PartialShape, Type, opset13 as op
from openvino.op.util import Variable, VariableInfo

from random_gguf import ROOT, SHAPES

MLPS = ("fused", "apart")
WEIGHTS = {"F16": None, "int8": {"mode": nncf.CompressWeightsMode.INT8_ASYM},
           "int4": {"mode": nncf.CompressWeightsMode.INT4_ASYM, "group_size": 128, "ratio": 1.0}}
LARGEST = np.iinfo(np.int64).max


def model_folder(shape, mlp, weight_type="F16"):
    """The folder of the model in build/peers, which is written if it is not there."""
    peers = ROOT / "build" / "peers"
    folder = peers / f"{shape}-{weight_type}-openvino-{mlp}"
    if (folder / "openvino_model.xml").is_file():
        return folder
    peers.mkdir(parents=True, exist_ok=True)
    needed, free = 2 * weights(shape) + (64 << 20), shutil.disk_usage(peers).free
    if free < needed:
        sys.exit(f"openvino_model: {folder} needs {needed >> 20} MiB, but only {free >> 20} MiB are free: make room and run this again")
    print(f"writing {folder.name}", file=sys.stderr)
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    model = Llama(*SHAPES[shape], mlp).model()
    if WEIGHTS[weight_type]:
        model = nncf.compress_weights(model, **WEIGHTS[weight_type])
    openvino.save_model(model, partial / "openvino_model.xml", compress_to_fp16=True)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    return folder


def weights(shape):
    """How many the shape has, without the norms'."""
    layers, hidden, heads, kv_heads, ffn, vocab = SHAPES[shape]
    return 2 * vocab * hidden + layers * hidden * (2 * hidden + 2 * kv_heads * (hidden // heads) + 3 * ffn)


def ints(*values):
    return op.constant(np.array(values, np.int64))


def number(value):
    return op.constant(np.float32(value))


class Llama:
    """Builds the graph. Inputs: input_ids and position_ids [batch, new], attention_mask [batch, all], beam_idx [batch]; output: logits."""

    def __init__(self, layers, hidden, heads, kv_heads, ffn, vocab, mlp):
        self.mlp = mlp
        self.layers, self.hidden, self.heads, self.kv_heads, self.ffn, self.vocab = layers, hidden, heads, kv_heads, ffn, vocab
        self.head_dim = hidden // heads
        self.random = np.random.default_rng(1)
        self.arrays = []  # the constants look into these
        self.states = []

    def matrix(self, name, rows, columns):
        values = self.random.standard_normal((rows, columns), dtype=np.float32)
        values *= 1.0 / np.sqrt(columns)
        self.arrays.append(values)
        constant = openvino.op.Constant(openvino.Tensor(values))
        constant.set_friendly_name(name)
        return constant

    def linear(self, x, name, rows, columns):
        return op.matmul(x, self.matrix(name, rows, columns), False, True)

    def norm(self, x):
        mean = op.reduce_mean(op.power(x, number(2)), ints(-1), True)
        scaled = op.multiply(x, op.divide(number(1), op.sqrt(op.add(mean, number(1e-5)))))
        return op.multiply(op.constant(np.ones((1, 1, self.hidden), np.float32)), scaled)

    def split_heads(self, x, heads):
        return op.transpose(op.reshape(x, ints(0, 0, heads, self.head_dim), True), ints(0, 2, 1, 3))

    def angles(self, position_ids):
        """Cosines and sines, [batch, 1, new, head_dim] each."""
        base = 10000.0 ** (-np.arange(0, self.head_dim, 2, dtype=np.float32) / self.head_dim)
        shape = op.concat([self.batch, ints(1), ints(1)], 0)
        base = op.broadcast(op.constant(base.reshape(1, -1, 1)), shape, broadcast_spec="BIDIRECTIONAL")
        positions = op.convert(op.unsqueeze(position_ids, ints(1)), "f32")
        half = op.transpose(op.matmul(base, positions, False, False), ints(0, 2, 1))
        both = op.concat([half, half], -1)
        return op.unsqueeze(op.cos(both), ints(1)), op.unsqueeze(op.sin(both), ints(1))

    def rotate(self, x):
        half = self.head_dim // 2
        low, high = (op.slice(x, ints(begin), ints(end), ints(1), ints(3)) for begin, end in ((0, half), (half, LARGEST)))
        turned = op.concat([op.multiply(high, op.constant(np.full((1, 1, 1, 1), -1, np.float32))), low], -1)
        return op.add(op.multiply(x, self.cos), op.multiply(turned, self.sin))

    def mask(self, input_ids, attention_mask):
        """[batch, 1, new, all]: 0 where a token may look, else the lowest number."""
        dimension = lambda tensor: op.gather(op.shape_of(tensor), ints(1), op.constant(np.int64(0)))
        every = dimension(attention_mask)
        scalar = lambda tensor: op.squeeze(tensor, ints(0))
        zero, one = op.constant(np.int64(0)), op.constant(np.int64(1))
        keys = op.range(zero, scalar(every), one, Type.i64)
        queries = op.range(scalar(op.subtract(every, dimension(input_ids))), scalar(every), one, Type.i64)
        causal = op.less_equal(op.unsqueeze(keys, ints(0)), op.unsqueeze(queries, ints(1)))
        present = op.convert(op.unsqueeze(attention_mask, ints(1, 2)), "boolean")
        seen = op.logical_and(op.unsqueeze(causal, ints(0, 1)), present)
        return op.select(seen, number(0), number(np.finfo(np.float32).min))

    def remember(self, x, name):
        """x after what the state holds, repeated for each head that shares it: [batch, heads, all, head_dim]."""
        info = VariableInfo()
        info.data_shape = PartialShape([-1, self.kv_heads, -1, self.head_dim])
        info.data_type = Type.f32
        info.variable_id = name
        variable = Variable(info)
        empty = op.broadcast(number(0), op.concat([self.batch, ints(self.kv_heads), ints(0), ints(self.head_dim)], 0))
        past = op.gather(op.read_value(empty, variable), self.beams, op.constant(np.int64(0)))
        present = op.concat([past, x], -2)
        self.states.append(op.assign(present, variable))
        tokens = op.gather(op.shape_of(present), ints(2), op.constant(np.int64(0)))
        groups = ints(self.heads // self.kv_heads)
        shape = op.concat([self.batch, ints(self.kv_heads), groups, tokens, ints(self.head_dim)], 0)
        repeated = op.broadcast(op.unsqueeze(present, ints(2)), shape, broadcast_spec="BIDIRECTIONAL")
        return op.reshape(repeated, ints(0, self.heads, -1, self.head_dim), True)

    def layer(self, x, index):
        prefix, kv_width = f"model.layers.{index}.", self.kv_heads * self.head_dim
        normed = self.norm(x)
        q = self.rotate(self.split_heads(self.linear(normed, prefix + "q_proj", self.hidden, self.hidden), self.heads))
        k = self.rotate(self.split_heads(self.linear(normed, prefix + "k_proj", kv_width, self.hidden), self.kv_heads))
        v = self.split_heads(self.linear(normed, prefix + "v_proj", kv_width, self.hidden), self.kv_heads)
        k, v = (self.remember(t, f"past_key_values.{index}.{n}present.{index}.{n}") for t, n in ((k, "key"), (v, "value")))
        seen = op.transpose(op.scaled_dot_product_attention(q, k, v, self.seen), ints(0, 2, 1, 3))
        x = op.add(x, self.linear(op.reshape(seen, ints(0, 0, self.hidden), True), prefix + "o_proj", self.hidden, self.hidden))
        normed = self.norm(x)
        gate = self.linear(normed, prefix + "gate_proj", self.ffn, self.hidden)
        silu = op.multiply(gate, op.sigmoid(gate)) if self.mlp == "fused" else op.swish(gate, number(1))
        gated = op.multiply(silu, self.linear(normed, prefix + "up_proj", self.ffn, self.hidden))
        return op.add(x, self.linear(gated, prefix + "down_proj", self.hidden, self.ffn))

    def model(self):
        inputs = {"input_ids": [-1, -1], "attention_mask": [-1, -1], "position_ids": [-1, -1], "beam_idx": [-1]}
        nodes = {name: op.parameter(shape, Type.i32 if name == "beam_idx" else Type.i64, name=name) for name, shape in inputs.items()}
        for name, node in nodes.items():
            node.output(0).get_tensor().set_names({name})
        zero = op.constant(np.int64(0))
        self.beams = nodes["beam_idx"]
        self.batch = op.gather(op.shape_of(nodes["input_ids"]), ints(0), zero)
        self.cos, self.sin = self.angles(nodes["position_ids"])
        self.seen = self.mask(nodes["input_ids"], nodes["attention_mask"])
        x = op.gather(self.matrix("model.embed_tokens", self.vocab, self.hidden), op.convert(nodes["input_ids"], "i32"), zero)
        for index in range(self.layers):
            x = self.layer(x, index)
        logits = self.linear(self.norm(x), "lm_head", self.vocab, self.hidden)
        logits.output(0).get_tensor().set_names({"logits"})
        return Model([op.result(logits)], self.states, list(nodes.values()), "llama")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="1.1B")
    parser.add_argument("--mlp", choices=MLPS, default="fused")
    parser.add_argument("--weights", choices=WEIGHTS, default="F16")
    options = parser.parse_args()
    print(model_folder(options.shape, options.mlp, options.weights))


if __name__ == "__main__":
    main()
