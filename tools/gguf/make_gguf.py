#!/usr/bin/env python3
"""Writes a Hugging Face folder of a Llama, Mistral, Qwen2 or Qwen3 model as GGUF, through the package `gguf`.

Usage: make_gguf.py FOLDER OUT.gguf [--type F32] [--tensor-type NAME=T ...] [--tensors-per-part N] [--dequantised FOLDER]
       make_gguf.py --blocks OUT.gguf
       make_gguf.py --errors
  --type T                F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K or Q6_K for matrices (default F32); matrices whose rows
                          are not whole blocks of it, and vectors, are F32
  --tensor-type NAME=T    another type for the matrices of that name in the file, without layer and ending (attn_v=Q6_K); may be given several times
  --tensors-per-part N    split the model: OUT-00001-of-0000N.gguf ...
  --dequantised FOLDER    also write there, as F32 safetensors with the model's other files, what the package reads from the quantised weights
  --errors                print each type's error (root mean square, relative) over normally distributed weights
  --blocks                write random blocks of every type beside their values as the package reads them (tests/goldens/gguf-blocks.gguf)
The tokenizer is read from tokenizer.model (SentencePiece), else from tokenizer.json (byte-level BPE).

    python3 -m venv build/gguf-venv && build/gguf-venv/bin/pip install --no-deps -r tools/gguf/requirements.txt
    build/gguf-venv/bin/python tools/gguf/make_gguf.py MODEL_DIR model-q8_0.gguf --type Q8_0

Quantisation is round to nearest: good enough for tests, not for publishing models.
"""
import argparse
import json
import pathlib
import shutil
import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from safetensors_files import read_safetensors, write_safetensors  # noqa: E402

TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"]
ARCHITECTURES = {"LlamaForCausalLM": "llama", "MistralForCausalLM": "llama", "Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3"}
NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
LAYER_NAMES = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
               "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
               "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def scales_of(blocks, steps, divisor):
    """Per run: fp16 super-scale d and integers s so that d * s is about `steps`."""
    d = (steps.max(axis=-1, keepdims=True) / divisor).astype(np.float16).astype(np.float32)
    safe = np.where(d > 0, d, 1)
    return d, np.clip(np.rint(steps / safe), 0, divisor)


def half_bytes(values):
    return values.astype(np.float16).view(np.uint8).reshape(len(values), 2)


def quantise_with_minimum(rows, bits):
    """Q4_K and Q5_K: runs of 32 with a scale and a minimum of 6 bits each."""
    runs = rows.reshape(-1, 8, 32)
    low = np.minimum(runs.min(axis=-1), 0)
    d, scale = scales_of(runs, (runs.max(axis=-1) - low) / (2**bits - 1), 63)
    m, minimum = scales_of(runs, -low, 63)
    step = (d * scale)[..., None]
    values = np.where(step > 0, np.rint((runs + (m * minimum)[..., None]) / np.where(step > 0, step, 1)), 0)
    values = np.clip(values, 0, 2**bits - 1).astype(np.uint8)
    s, n = scale.astype(np.uint8), minimum.astype(np.uint8)
    packed = np.concatenate([s[:, :4] | (s[:, 4:] >> 4) << 6, n[:, :4] | (n[:, 4:] >> 4) << 6, (s[:, 4:] & 15) | (n[:, 4:] & 15) << 4], axis=1)
    pairs = values.reshape(-1, 4, 2, 32)
    low_bits = ((pairs[:, :, 0] & 15) | (pairs[:, :, 1] & 15) << 4).reshape(-1, 128)
    parts = [half_bytes(d), half_bytes(m), packed]
    if bits == 5:
        parts.append(np.bitwise_or.reduce((values >> 4) << np.arange(8, dtype=np.uint8).reshape(1, 8, 1), axis=1))
    return np.concatenate(parts + [low_bits], axis=1)


def quantise_q6_k(rows):
    runs = rows.reshape(-1, 16, 16)
    d, scale = scales_of(runs, np.abs(runs).max(axis=-1) / 31, 127)
    step = (d * scale)[..., None]
    values = np.where(step > 0, np.rint(runs / np.where(step > 0, step, 1)), 0)
    values = (np.clip(values, -32, 31) + 32).astype(np.uint8).reshape(-1, 2, 4, 32)
    low = (values[:, :, :2] & 15) | (values[:, :, 2:] & 15) << 4
    high = np.bitwise_or.reduce((values >> 4) << np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1), axis=2)
    return np.concatenate([low.reshape(-1, 128), high.reshape(-1, 64), scale.astype(np.int8).view(np.uint8), half_bytes(d)], axis=1)


def quantise(values, name):
    """Bytes of the rows, [rows, bytes]."""
    kind = Type[name]
    if name in ("Q4_K", "Q5_K"):
        blocks = quantise_with_minimum(values, int(name[1]))
    elif name == "Q6_K":
        blocks = quantise_q6_k(values)
    else:
        return gguf.quantize(values, kind)
    return blocks.reshape(values.shape[0], -1)


def paired(values, heads):
    """Rows of each head so that those of a rotated pair are neighbours, as GGUF has them for Llama."""
    return values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)


def gguf_name(name):
    stem, kind = name.rsplit(".", 1)
    if stem in NAMES:
        return f"{NAMES[stem]}.{kind}"
    _, _, layer, rest = stem.split(".", 3)
    return f"blk.{layer}.{LAYER_NAMES[rest]}.{kind}"


def llama3_divisors(rope, head_dim, theta):
    frequencies = theta ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    length = 2 * np.pi / frequencies
    low, high, factor = rope["low_freq_factor"], rope["high_freq_factor"], rope["factor"]
    smooth = (rope["original_max_position_embeddings"] / length - low) / (high - low)
    divisors = 1 / ((1 - smooth) / factor + smooth)
    divisors = np.where(smooth < 0, factor, np.where(smooth > 1, 1, divisors))
    return divisors.astype(np.float32)


def add_shape(writer, config):
    heads = config["num_attention_heads"]
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.get("num_key_value_heads", heads))
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}  # newer folders have all of RoPE in the first
    theta = rope.get("rope_theta", config.get("rope_theta", 10000.0))
    writer.add_rope_freq_base(theta)
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    if config["architectures"][0] == "MistralForCausalLM" and config.get("sliding_window"):
        writer.add_sliding_window(config["sliding_window"])
    kind = rope.get("rope_type") or rope.get("type")
    if kind == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    elif kind == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    elif kind == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_divisors(rope, head_dim, theta))
    elif kind not in (None, "default"):
        sys.exit(f"make_gguf.py: RoPE scaling {kind} has no place in these files")


def add_sentencepiece(writer, path):
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    ids = range(processor.get_piece_size())
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([processor.id_to_piece(i).encode() for i in ids])
    writer.add_token_scores([processor.get_score(i) for i in ids])
    writer.add_token_types([2 if processor.is_unknown(i) else 3 if processor.is_control(i) else 5 if processor.is_unused(i) else 6 if processor.is_byte(i) else 1
                            for i in ids])
    writer.add_unk_token_id(processor.unk_id())
    return {processor.id_to_piece(i): i for i in ids}, True


def add_byte_level(writer, file, pre):
    words = dict(file["model"]["vocab"])
    types = {i: 1 for i in words.values()}
    for token in file["added_tokens"]:
        words[token["content"]] = token["id"]
        types[token["id"]] = 3 if token["special"] else 4
    by_id = {i: text for text, i in words.items()}
    count = max(by_id) + 1
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([by_id.get(i, f"[PAD{i}]").encode() for i in range(count)])
    writer.add_token_types([types.get(i, 5) for i in range(count)])
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in file["model"]["merges"]])
    return words, False


def write_vocabulary(out, fill, bos=None):
    """A file without weights. `fill` is given the writer and returns {token: id} first; `bos`, where given, stands before every text."""
    writer = gguf.GGUFWriter(out, "llama")
    words, _ = fill(writer)
    writer.add_add_bos_token(bos is not None)
    if bos is not None:
        writer.add_bos_token_id(words[bos])
    finish(writer)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_tokenizer(writer, folder):
    if (folder / "tokenizer.model").exists():
        words, add_bos = add_sentencepiece(writer, folder / "tokenizer.model")
    else:
        file = json.loads((folder / "tokenizer.json").read_text())
        cut = file["pre_tokenizer"] or {}
        if cut.get("type") != "ByteLevel" or cut.get("add_prefix_space", True) or not cut.get("use_regex", True):
            sys.exit(f"make_gguf.py: {folder}: this program knows the pre-tokenizer of GPT-2 only")
        words, add_bos = add_byte_level(writer, file, "gpt-2")
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text()) if path.exists() else {}
    writer.add_add_bos_token(config.get("add_bos_token", add_bos))
    for key, add in (("bos_token", writer.add_bos_token_id), ("eos_token", writer.add_eos_token_id), ("pad_token", writer.add_pad_token_id)):
        token = config.get(key)
        token = token["content"] if isinstance(token, dict) else token
        if token in words:
            add(words[token])
    if "chat_template" in config:
        writer.add_chat_template(config["chat_template"])


def matrix_name(name):
    """blk.0.attn_q.weight -> attn_q"""
    return name.split(".")[-2]


def convert(folder, out, name, tensors_per_part=0, dequantised=None, types=None):
    """`types`: {matrix_name: type} of matrices whose type is not `name`."""
    config = json.loads((folder / "config.json").read_text())
    architecture = ARCHITECTURES[config["architectures"][0]]
    writer = gguf.GGUFWriter(out, architecture, split_max_tensors=tensors_per_part)
    writer.add_name(folder.name)
    add_shape(writer, config)
    add_tokenizer(writer, folder)
    heads = config["num_attention_heads"]
    kept = {}
    for tensor, values in read_safetensors(folder).items():
        wanted = (types or {}).get(matrix_name(gguf_name(tensor)), name)
        fits = values.ndim == 2 and values.shape[1] % gguf.GGML_QUANT_SIZES[Type[wanted]][0] == 0
        kind = wanted if fits else "F32"
        count = heads if ".q_proj." in tensor else config.get("num_key_value_heads", heads)
        moved = architecture == "llama" and (".q_proj." in tensor or ".k_proj." in tensor)
        data = quantise(values, kind)
        kept[tensor] = gguf.dequantize(data, Type[kind]).reshape(values.shape).astype(np.float32)
        writer.add_tensor(gguf_name(tensor), np.ascontiguousarray(paired(data, count) if moved else data), raw_dtype=Type[kind])
    finish(writer)
    if dequantised is not None:
        shutil.copytree(folder, dequantised, ignore=shutil.ignore_patterns("*.safetensors*"))
        config["torch_dtype"] = "float32"
        (dequantised / "config.json").write_text(json.dumps(config))
        write_safetensors(dequantised / "model.safetensors", kept)


def write_blocks(out, seed=1):
    """Tensors T and T.values: two rows of random blocks of each type, all bits in use, scales finite."""
    rng = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(out, "llama")
    halves = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "F16": [0]}
    for name in TYPES[1:]:
        elements, size = gguf.GGML_QUANT_SIZES[Type[name]]
        count = 16 if elements == 1 else 2 if elements == 256 else 3
        blocks = rng.integers(0, 256, (2, count, size), np.uint8)
        scales = (rng.standard_normal((2, count, 2)) * 0.02).astype(np.float16)
        for i, offset in enumerate(halves.get(name, [])):
            blocks[..., offset:offset + 2] = scales[..., i:i + 1].view(np.uint8)
        if name == "BF16":
            blocks[..., 1] = blocks[..., 1] & 0x80 | 0x3C  # finite
        data = blocks.reshape(2, -1)
        values = gguf.dequantize(data, Type[name]).reshape(2, -1)
        assert np.isfinite(values).all()
        if name == "F16":
            data = data.view(np.float16)
        writer.add_tensor(name, data, raw_dtype=Type[name])
        writer.add_tensor(name + ".values", values)
    finish(writer)


def print_errors():
    weights = np.random.default_rng(0).standard_normal((256, 4096)).astype(np.float32) * 0.05
    for name in TYPES:
        read = gguf.dequantize(quantise(weights, name), Type[name]).reshape(weights.shape)
        print(f"{name:5} {100 * np.sqrt(np.mean((read - weights) ** 2) / np.mean(weights**2)):.2f} %")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=pathlib.Path)
    parser.add_argument("--type", choices=TYPES, default="F32")
    parser.add_argument("--tensor-type", action="append", default=[], metavar="NAME=T")
    parser.add_argument("--tensors-per-part", type=int, default=0)
    parser.add_argument("--dequantised", type=pathlib.Path)
    parser.add_argument("--blocks", action="store_true")
    parser.add_argument("--errors", action="store_true")
    options = parser.parse_args()
    if options.errors:
        print_errors()
    elif options.blocks and len(options.paths) == 1:
        write_blocks(options.paths[0])
    elif not options.blocks and len(options.paths) == 2:
        types = dict(pair.split("=", 1) if "=" in pair else (pair, "") for pair in options.tensor_type)
        if not set(types.values()) <= set(TYPES):
            parser.error(f"--tensor-type: give NAME=T with T of {', '.join(TYPES)}")
        convert(*options.paths, options.type, options.tensors_per_part, options.dequantised, types)
    else:
        parser.error("give FOLDER OUT.gguf, or --blocks OUT.gguf")


if __name__ == "__main__":
    main()
