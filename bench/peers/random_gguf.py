"""A GGUF file of a random-weight Llama for the peers."""
import pathlib
import sys

import gguf
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SHAPES = {  # layers, hidden, heads, KV heads, FFN, vocabulary
    "1.1B": (22, 2048, 32, 4, 5632, 32000),
    "tiny": (2, 256, 8, 2, 512, 512),
}
TYPES = {"F32": gguf.GGMLQuantizationType.F32, "F16": gguf.GGMLQuantizationType.F16, "BF16": gguf.GGMLQuantizationType.BF16,
         "Q8_0": gguf.GGMLQuantizationType.Q8_0, "Q4_0": gguf.GGMLQuantizationType.Q4_0}
FILE_TYPES = {"F32": gguf.LlamaFileType.ALL_F32, "F16": gguf.LlamaFileType.MOSTLY_F16, "BF16": gguf.LlamaFileType.MOSTLY_BF16,
              "Q8_0": gguf.LlamaFileType.MOSTLY_Q8_0, "Q4_0": gguf.LlamaFileType.MOSTLY_Q4_0}


def model_file(shape, type_name):
    """The path of the file in build/peers, which is written if it is not there."""
    folder = ROOT / "build" / "peers"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{shape}-{type_name}-vocabulary.gguf"
    if not path.is_file():
        print(f"writing {path.name}", file=sys.stderr)
        partial = path.with_suffix(".partial")
        write_model(partial, shape, type_name)
        partial.rename(path)
    return path


def add_vocabulary(writer, size):
    """Tokens that no text will meet: the benchmarks give ids."""
    tokens = [f"t{i}" for i in range(size)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL if i < 2 else gguf.TokenType.NORMAL for i in range(size)])
    writer.add_token_merges(["t 1"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)


def write_model(path, shape, type_name):
    """A GGUF file with seeded random weights."""
    layers, hidden, heads, kv_heads, ffn, vocab = SHAPES[shape]
    head_dim = hidden // heads
    random = np.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(f"random {shape}")
    writer.add_file_type(FILE_TYPES[type_name])
    writer.add_context_length(4096)
    writer.add_embedding_length(hidden)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(ffn)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(head_dim)
    writer.add_vocab_size(vocab)
    add_vocabulary(writer, vocab)

    def matrix(name, rows, columns):
        values = random.standard_normal((rows, columns), dtype=np.float32)
        values *= 1.0 / np.sqrt(columns)
        if type_name == "F32":
            writer.add_tensor(name, values)
        elif type_name == "F16":
            writer.add_tensor(name, values.astype(np.float16))
        else:
            writer.add_tensor(name, gguf.quants.quantize(values, TYPES[type_name]), raw_dtype=TYPES[type_name])

    matrix("token_embd.weight", vocab, hidden)
    for layer in range(layers):
        p = f"blk.{layer}."
        writer.add_tensor(p + "attn_norm.weight", np.ones(hidden, np.float32))
        writer.add_tensor(p + "ffn_norm.weight", np.ones(hidden, np.float32))
        matrix(p + "attn_q.weight", hidden, hidden)
        matrix(p + "attn_k.weight", kv_heads * head_dim, hidden)
        matrix(p + "attn_v.weight", kv_heads * head_dim, hidden)
        matrix(p + "attn_output.weight", hidden, hidden)
        matrix(p + "ffn_gate.weight", ffn, hidden)
        matrix(p + "ffn_up.weight", ffn, hidden)
        matrix(p + "ffn_down.weight", hidden, ffn)
    writer.add_tensor("output_norm.weight", np.ones(hidden, np.float32))
    matrix("output.weight", vocab, hidden)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
