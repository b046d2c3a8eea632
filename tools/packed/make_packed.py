#!/usr/bin/env python3
"""Quantises a Hugging Face folder and writes it as GPTQ, AWQ or compressed-tensors, with numpy alone.

Usage: make_packed.py FOLDER OUT --format F [--bits 4|8] [--group N] [--asymmetric] [--scales F16|BF16] [--keep TEXT ...] [--dequantised FOLDER]
  --format F              gptq, gptq_v2, awq, pack-quantized or int-quantized
  --group N               columns that share a scale; -1, the default, is a whole row
  --asymmetric            with zero points (awq always has them)
  --keep TEXT             leave layers as they are whose name contains TEXT; may be given several times
  --dequantised FOLDER    also write there, as F32 safetensors, the values of the quantised weights

The layouts are written from the formats' descriptions, as a second opinion beside the libraries that tools/packed/make_goldens.py asks.
Quantisation is round to nearest: good enough for tests, not for publishing models.
"""
import argparse
import json
import pathlib
import shutil
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from safetensors_files import bf16, from_bf16, read_safetensors, write_safetensors  # noqa: E402

FORMATS = ["gptq", "gptq_v2", "awq", "pack-quantized", "int-quantized"]
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # four bits i of a word are row AWQ_ORDER[i] of its eight


def words(values, bits, order=None):
    """Packs the last axis, unsigned integers of `bits` bits, the first in the lowest bits, as int32."""
    per_word = 32 // bits
    padded = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, -values.shape[-1] % per_word)])
    parts = padded.astype(np.uint32).reshape(*values.shape[:-1], -1, per_word)
    packed = np.zeros(parts.shape[:-1], np.uint32)
    for i in range(per_word):
        packed |= parts[..., i if order is None else order[i]] << np.uint32(bits * i)
    return packed.view(np.int32)


def quantise(weight, bits, group, symmetric, scales):
    """Unsigned integers q [rows, columns], scales and zero points [rows, groups], and scale * (q - zero) in float32."""
    rows, columns = weight.shape
    group = columns if group < 0 else group
    parts = weight.reshape(rows, columns // group, group)
    top, middle = 2**bits - 1, 2**(bits - 1)
    low, high = np.minimum(parts.min(-1), 0), np.maximum(parts.max(-1), 0)
    steps = np.maximum(np.abs(low), high) / (middle - 0.5) if symmetric else (high - low) / top
    steps = np.maximum(steps, 1e-4).astype(np.float32)
    stored = bf16(steps) if scales == "BF16" else steps.astype(np.float16)
    scale = from_bf16(stored) if scales == "BF16" else stored.astype(np.float32)
    zero = np.full(scale.shape, middle) if symmetric else np.clip(np.rint(-low / scale), 1, top).astype(np.int64)
    q = np.clip(np.rint(parts / scale[..., None]) + zero[..., None], 0, top).astype(np.int64)
    values = scale[..., None] * (q - zero[..., None]).astype(np.float32)
    return q.reshape(rows, columns), stored, zero, values.reshape(rows, columns)


def layer_tensors(kind, q, scales, zero, bits, symmetric, groups):
    """The tensors of a layer, by their names behind the layer's. `groups`: of each column."""
    middle = 2**(bits - 1)
    if kind in ("gptq", "gptq_v2"):
        return {"qweight": words(q, bits).T, "qzeros": words(zero.T - (kind == "gptq"), bits), "scales": scales.T, "g_idx": groups.astype(np.int32)}
    if kind == "awq":
        return {"qweight": words(q.T, bits, AWQ_ORDER), "qzeros": words(zero.T, bits, AWQ_ORDER), "scales": scales.T}
    tensors = {"weight_scale": scales}
    if kind == "pack-quantized":
        tensors |= {"weight_packed": words(q, bits), "weight_shape": np.array(q.shape, np.int64)}
        return tensors if symmetric else tensors | {"weight_zero_point": words(zero.T, bits).T}
    tensors["weight"] = (q - middle).astype(np.int8)
    return tensors if symmetric else tensors | {"weight_zero_point": (zero - middle).astype(np.int8)}


def quantization_config(kind, bits, group, symmetric, kept, act_order):
    if kind in ("gptq", "gptq_v2"):
        return {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": symmetric, "desc_act": act_order, "checkpoint_format": kind}
    if kind == "awq":
        return {"quant_method": "awq", "bits": bits, "group_size": group, "zero_point": True, "version": "gemm", "modules_to_not_convert": kept or None}
    weights = {"num_bits": bits, "type": "int", "symmetric": symmetric, "strategy": "channel" if group < 0 else "group", "group_size": None if group < 0 else group}
    return {"quant_method": "compressed-tensors", "format": kind, "quantization_status": "compressed", "ignore": ["lm_head", *kept],
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": None, "output_activations": None}}}


def convert(folder, out, kind, bits=4, group=-1, symmetric=True, scales="F16", keep=(), dequantised=None, act_order=False):
    """Embedding, head, vectors and the layers of `keep` stay as they are, in F16 as such checkpoints have them. `act_order` (GPTQ): the columns
    of a group are chosen at random, in place of by their activations."""
    random = np.random.default_rng(5)
    symmetric = symmetric and kind != "awq"
    packed, values = {}, {}
    for name, tensor in read_safetensors(folder).items():
        layer = name.removesuffix(".weight")
        kept = tensor.ndim != 2 or not layer.startswith("model.layers.") or any(text in layer for text in keep)
        if kept:
            packed[name] = tensor.astype(np.float16)
            values[name] = packed[name].astype(np.float32)
            continue
        columns = tensor.shape[1]
        order = random.permutation(columns) if act_order else np.arange(columns)  # column order[i] is quantised as number i
        q, stored, zero, dequantised_columns = quantise(tensor[:, order], bits, group, symmetric, scales)
        place = np.argsort(order)
        values[name] = dequantised_columns[:, place]
        for part, part_values in layer_tensors(kind, q[:, place], stored, zero, bits, symmetric, place // (columns // stored.shape[1])).items():
            packed[f"{layer}.{part}"] = part_values
    config = json.loads((folder / "config.json").read_text())
    for key in ("torch_dtype", "dtype"):
        config.pop(key, None)
    write_folder(folder, out, packed, config | {"torch_dtype": "float16", "quantization_config": quantization_config(kind, bits, group, symmetric, list(keep), act_order)})
    if dequantised:
        write_folder(folder, dequantised, values, config | {"torch_dtype": "float32"})


def write_folder(folder, out, tensors, config):
    out.mkdir(parents=True)
    for path in folder.iterdir():
        if path.is_file() and path.name != "config.json" and not path.name.startswith("model"):
            shutil.copy(path, out / path.name)
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    write_safetensors(out / "model.safetensors", tensors)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--format", choices=FORMATS, required=True)
    parser.add_argument("--bits", type=int, choices=[4, 8], default=4)
    parser.add_argument("--group", type=int, default=-1)
    parser.add_argument("--asymmetric", action="store_true")
    parser.add_argument("--scales", choices=["F16", "BF16"], default="F16")
    parser.add_argument("--act-order", action="store_true", help="GPTQ: groups of columns that are not side by side")
    parser.add_argument("--keep", action="append", default=[])
    parser.add_argument("--dequantised", type=pathlib.Path)
    flags = parser.parse_args()
    convert(flags.folder, flags.out, flags.format, flags.bits, flags.group, not flags.asymmetric, flags.scales, flags.keep, flags.dequantised, flags.act_order)


if __name__ == "__main__":
    main()
