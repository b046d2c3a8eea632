#!/usr/bin/env python3
"""Makes small random-weight Hugging Face models and their golden logits with transformers, into tests/goldens/<model>/.

What a golden folder holds and how it is to be compared stands in tests/goldens/README.md. The files are committed; ./test.sh needs
neither this script nor torch. To make them again (torch's wheel is large; minutes):

    python3 -m venv build/goldens-venv
    build/goldens-venv/bin/pip install -r tools/make_goldens.requirements.txt
    build/goldens-venv/bin/python tools/make_goldens.py            # or with the names of some models

Weights, prompts and tokenizer come from fixed seeds, so another run writes the same models; logits agree to float32 rounding.
Every model is written first and then read back by transformers, so the logits belong to the files as another reader sees them.
"""
import copy
import json
import pathlib
import shutil
import sys

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "goldens"
VOCAB = 384
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>"]
GREEDY_TOKENS = 32
PROMPT_LENGTHS = (1, 7, 33, 300)  # 300 + 32 crosses the first 256-token split of attention
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# What the tokenizer is trained on: enough to get merges of several lengths, apostrophes, digits and two-byte letters.
CORPUS = [
    "The server reads a request, the request waits for a step, and the step returns one token to the reader.",
    "A token comes back up, and the text of a token is a part of a word: token, tokens, tokenizer.",
    "It's what they've asked for; we'll see what they're sent. 1234 5678 90 items, 42 of them late.",
    "Größe und Maß: die Wörter über den Flüssen. El niño y la mañana; où est la forêt?",
]
TEXTS = ["", "Hello, world!", "The server's request waits: 1234 tokens.", "Größe über señor", "日本語 and 🙂 emoji",
         "  leading\n\n\ttabs  and trailing  ", "<|im_start|>user\nHi<|im_end|>"]

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": False, "mlp_bias": False,
    "attention_dropout": 0.0, "hidden_act": "silu", "initializer_range": 0.02, "pretraining_tp": 1, "use_cache": True,
}
QWEN2 = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "attention_dropout": 0.0, "hidden_act": "silu",
    "initializer_range": 0.02, "use_cache": True, "use_sliding_window": False, "sliding_window": None, "max_window_layers": 2,
}
QWEN3 = QWEN2 | {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "attention_bias": False}
MISTRAL = {
    "architectures": ["MistralForCausalLM"], "model_type": "mistral", "attention_dropout": 0.0, "hidden_act": "silu",
    "initializer_range": 0.02, "use_cache": True,
}
COMMON = {"vocab_size": VOCAB, "max_position_embeddings": 512, "bos_token_id": 372, "eos_token_id": 372}
QWEN3_SHAPE = dict(
    hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
    rms_norm_eps=1e-6, rope_theta=1000000.0, tie_word_embeddings=True, torch_dtype="bfloat16")
ROPE_SHAPE = dict(
    hidden_size=72, intermediate_size=172, num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=2, head_dim=16,
    rms_norm_eps=1e-5, tie_word_embeddings=False)
# A model with "weights_of" has the other's weights and tokenizer (as links) under a configuration of its own, and float32 logits only.
# A prompt's second number is the length that is served, where logits depend on it; it has no greedy text then.
MODELS = {
    # GQA 8/2, heads * head_dim (128) differs from hidden (72), rope scaling that moves most frequencies within the prompts' length.
    "llama-gqa-rope3-f32": dict(
        seed=104, dtype=torch.float32, shards=1,
        config=LLAMA | COMMON | dict(
            hidden_size=72, intermediate_size=172, num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=2,
            head_dim=16, rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False, torch_dtype="float32",
            rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                          "original_max_position_embeddings": 64}),
        generation={}),
    # One KV head, head_dim 8 (not named in the config), tied embeddings, three layers in two shard files.
    "llama-mqa-tied-f32-sharded": dict(
        seed=120, dtype=torch.float32, shards=2,
        config=LLAMA | COMMON | dict(
            hidden_size=40, intermediate_size=108, num_hidden_layers=3, num_attention_heads=5, num_key_value_heads=1,
            rms_norm_eps=1e-6, rope_theta=10000.0, rope_scaling=None, tie_word_embeddings=True, torch_dtype="float32"),
        generation={}),
    # QKV bias, stored as BF16, sampling defaults and two end tokens in generation_config.json.
    "qwen2-bf16": dict(
        seed=113, dtype=torch.bfloat16, shards=1,
        config=QWEN2 | COMMON | dict(
            hidden_size=64, intermediate_size=100, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            rms_norm_eps=1e-6, rope_theta=1000000.0, tie_word_embeddings=False, torch_dtype="bfloat16"),
        generation={"do_sample": True, "temperature": 0.7, "top_p": 0.9, "top_k": 20, "repetition_penalty": 1.05,
                    "eos_token_id": [374, 372]}),
    # Tied, stored as F16, and the configuration in the words of transformers 5: dtype and rope_parameters.
    "qwen2-tied-f16": dict(
        seed=124, dtype=torch.float16, shards=1,
        config=QWEN2 | COMMON | dict(
            hidden_size=48, intermediate_size=88, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=3,
            rms_norm_eps=1e-6, tie_word_embeddings=True, dtype="float16",
            rope_parameters={"rope_type": "default", "rope_theta": 500000.0}),
        generation={}),
    # Norms of the heads of q and k, heads wider than hidden / heads.
    "qwen3-bf16": dict(seed=131, dtype=torch.bfloat16, shards=1, config=QWEN3 | COMMON | QWEN3_SHAPE, generation={}),
    # The same weights with a window of 40 tokens in the second layer only: shorter than a prompt, longer than a block.
    "qwen3-window": dict(
        seed=132, weights_of="qwen3-bf16",
        config=QWEN3 | COMMON | QWEN3_SHAPE | dict(use_sliding_window=True, sliding_window=40, max_window_layers=1)),
    # A window of 100 tokens in every layer, head_dim of its own.
    "mistral-window-bf16": dict(
        seed=133, dtype=torch.bfloat16, shards=1,
        config=MISTRAL | COMMON | dict(
            hidden_size=40, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
            rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=True, torch_dtype="bfloat16", sliding_window=100),
        generation={}),
    # The four kinds of RoPE scaling beside llama3, over the weights of one model.
    "llama-rope-linear": dict(
        seed=141, weights_of="llama-gqa-rope3-f32",
        config=LLAMA | COMMON | ROPE_SHAPE | dict(rope_theta=10000.0, torch_dtype="float32", rope_scaling={"type": "linear", "factor": 4.0})),
    "llama-rope-yarn": dict(
        seed=142, weights_of="llama-gqa-rope3-f32",
        config=LLAMA | COMMON | ROPE_SHAPE | dict(
            rope_theta=10000.0, torch_dtype="float32",
            rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64})),
    "llama-rope-yarn-mscale": dict(
        seed=143, weights_of="llama-gqa-rope3-f32",
        config=LLAMA | COMMON | ROPE_SHAPE | dict(
            dtype="float32", rope_parameters={
                "rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "original_max_position_embeddings": 64, "beta_fast": 8.0,
                "beta_slow": 0.5, "mscale": 2.0, "mscale_all_dim": 0.5, "truncate": False})),
    "llama-rope-dynamic": dict(
        seed=144, weights_of="llama-gqa-rope3-f32", prompts=((1, None), (7, None), (33, None), (300, 300)),
        config=LLAMA | COMMON | ROPE_SHAPE | dict(
            max_position_embeddings=128, rope_theta=10000.0, torch_dtype="float32", rope_scaling={"rope_type": "dynamic", "factor": 4.0})),
}


def make_tokenizer():
    """Byte-level BPE: 256 bytes, merges up to 372, four special tokens, padding names up to VOCAB."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB - 12, min_frequency=1, special_tokens=[], show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(CORPUS, trainer)
    assert tokenizer.get_vocab_size() == VOCAB - 12, tokenizer.get_vocab_size()
    tokenizer.add_special_tokens(SPECIALS + [f"<|reserved_{i}|>" for i in range(8)])
    assert tokenizer.get_vocab_size() == VOCAB
    return tokenizer


def make_weights(config, seed):
    """Random weights such that logits spread over several units and attention is neither flat nor one-hot."""
    generator = torch.Generator().manual_seed(seed)
    hidden, inter, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    kv, head_dim = config["num_key_value_heads"], config.get("head_dim", hidden // heads)

    def normal(*shape, std):
        return torch.randn(*shape, generator=generator) * std

    def norm(size=hidden):
        return 0.5 + torch.rand(size, generator=generator)

    tied = config["tie_word_embeddings"]
    weights = {"model.embed_tokens.weight": normal(VOCAB, hidden, std=1.0)}
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        weights[p + "input_layernorm.weight"] = norm()
        weights[p + "self_attn.q_proj.weight"] = normal(heads * head_dim, hidden, std=1.1 / hidden**0.5)
        weights[p + "self_attn.k_proj.weight"] = normal(kv * head_dim, hidden, std=1.1 / hidden**0.5)
        weights[p + "self_attn.v_proj.weight"] = normal(kv * head_dim, hidden, std=1.0 / hidden**0.5)
        if config["model_type"] == "qwen2":
            for name, size in (("q", heads), ("k", kv), ("v", kv)):
                weights[p + f"self_attn.{name}_proj.bias"] = normal(size * head_dim, std=0.5)
        if config["model_type"] == "qwen3":
            for name in ("q", "k"):
                weights[p + f"self_attn.{name}_norm.weight"] = norm(head_dim)
        weights[p + "self_attn.o_proj.weight"] = normal(hidden, heads * head_dim, std=1.2 / (heads * head_dim) ** 0.5)
        weights[p + "post_attention_layernorm.weight"] = norm()
        weights[p + "mlp.gate_proj.weight"] = normal(inter, hidden, std=1.0 / hidden**0.5)
        weights[p + "mlp.up_proj.weight"] = normal(inter, hidden, std=1.0 / hidden**0.5)
        weights[p + "mlp.down_proj.weight"] = normal(hidden, inter, std=1.0 / inter**0.5)
    weights["model.norm.weight"] = norm()
    if tied:  # random signs: else every token's best successor is itself
        signs = torch.randint(0, 2, (hidden,), generator=generator) * 2 - 1
        weights["model.norm.weight"] *= signs * (3.0 / hidden**0.5)
    else:
        weights["lm_head.weight"] = normal(VOCAB, hidden, std=3.0 / hidden**0.5)
    return weights


def write_model(folder, spec, tokenizer):
    config = spec["config"]
    weights = {name: t.to(spec["dtype"]) for name, t in make_weights(config, spec["seed"]).items()}
    if spec["shards"] == 1:
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    else:
        names, where = list(weights), {}
        per_shard = -(-len(names) // spec["shards"])
        for shard in range(spec["shards"]):
            file = f"model-{shard + 1:05}-of-{spec['shards']:05}.safetensors"
            part = {name: weights[name] for name in names[shard * per_shard:(shard + 1) * per_shard]}
            save_file(part, folder / file, metadata={"format": "pt"})
            where |= dict.fromkeys(part, file)
        total = sum(t.numel() * t.element_size() for t in weights.values())
        write_json(folder / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": where})
    write_json(folder / "config.json", config)
    write_json(folder / "generation_config.json",
               {"bos_token_id": config["bos_token_id"], "eos_token_id": config["eos_token_id"]} | spec["generation"])
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    write_json(folder / "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": SPECIALS[0], "eos_token": SPECIALS[0],
        "pad_token": SPECIALS[3], "add_bos_token": False, "clean_up_tokenization_spaces": False,
        "model_max_length": config["max_position_embeddings"], "chat_template": CHATML})


def link_model(folder, spec):
    """The other model's files, but config.json."""
    other = OUT / spec["weights_of"]
    for name in ("model.safetensors", "generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).symlink_to(pathlib.Path("..") / other.name / name)
    write_json(folder / "config.json", spec["config"])


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1, ensure_ascii=True) + "\n")


def logits_of(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0]


def greedy_of(model, ids):
    """Continuation by argmax from full recomputation, and each step's margin (first minus second logit)."""
    tokens, margins = [], []
    for _ in range(GREEDY_TOKENS):
        top = torch.topk(logits_of(model, ids + tokens)[-1], 2)
        tokens.append(int(top.indices[0]))
        margins.append(round(float(top.values[0] - top.values[1]), 6))
    return tokens, margins


def relative(a, b):
    """Largest relative L2 error over rows."""
    a, b = a.double(), b.double()
    return float((torch.linalg.norm(a - b, dim=-1) / torch.linalg.norm(b, dim=-1)).max())


def make_golden(folder, spec, tokenizer):
    model32 = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    model64 = copy.deepcopy(model32).double()
    model_bf16 = copy.deepcopy(model32).to(torch.bfloat16)
    rounded32 = copy.deepcopy(model_bf16).float()
    # A conversion rounds the rotary frequencies too, which no reader of the weights does: they stay those of float32.
    for model in (model_bf16, rounded32, model64):
        kept = model32.model.rotary_emb
        model.model.rotary_emb = copy.deepcopy(kept)
    random = np.random.default_rng(spec["seed"])
    prompts, rows, errors = [], {"float32": []}, {"float32": 0.0, "bf16": 0.0}
    if "weights_of" not in spec:
        rows["bf16_weights"] = []
    for length, served in spec.get("prompts", [(length, None) for length in PROMPT_LENGTHS]):
        ids = [int(i) for i in random.integers(0, VOCAB - 12, length)]
        positions = sorted({0, length // 3, 255 if length > 256 else length // 2, 256 if length > 256 else length - 1, length - 1})
        logits = logits_of(model32, ids)
        rounded, bf16 = logits_of(rounded32, ids), logits_of(model_bf16, ids).float()
        errors["float32"] = max(errors["float32"], relative(logits, logits_of(model64, ids)))
        errors["bf16"] = max(errors["bf16"], relative(bf16, rounded))
        for name, values in (("float32", logits), ("bf16_weights", rounded)):
            if name in rows:
                rows[name].append(values[positions].numpy())
        tokens, margins = ([], []) if served else greedy_of(model32, ids)
        prompts.append({"name": f"length_{length}", "token_ids": ids, "logit_positions": positions,
                        "greedy_token_ids": tokens, "greedy_margins": margins} | ({"max_model_len": served} if served else {}))
        print(f"  {length:4} tokens: logits sd {float(logits.std()):.2f}, distinct greedy {len(set(tokens))}, "
              f"least margin {min(margins, default=0):.4f}")
    for name, parts in rows.items():
        np.concatenate(parts).astype("<f4").tofile(folder / f"logits_{name}.f32")
    fast = AutoTokenizer.from_pretrained(folder)
    write_json(folder / "golden.json", {
        "format": 1, "vocab_size": VOCAB,
        "float32_error_against_float64": errors["float32"], "bf16_error_against_bf16_weights": errors["bf16"],
        "encodings": [{"text": text, "token_ids": tokenizer.encode(text).ids} for text in TEXTS],
        "chat": {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who's there?"}],
                 "rendered": fast.apply_chat_template(
                     [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who's there?"}],
                     tokenize=False, add_generation_prompt=True)},
        "prompts": prompts})
    print(f"  float32 against float64 {errors['float32']:.1e}, torch bf16 against bf16 weights {errors['bf16']:.1e}")


def main(argv):
    names = argv[1:] or list(MODELS)
    unknown = [name for name in names if name not in MODELS]
    if unknown or "--help" in names:
        print(f"{__doc__}\nmodels: {' '.join(MODELS)}")
        return 2
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    tokenizer = make_tokenizer()
    for name in names:
        print(name)
        folder = OUT / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if "weights_of" in MODELS[name]:
            link_model(folder, MODELS[name])
        else:
            write_model(folder, MODELS[name], tokenizer)
        make_golden(folder, MODELS[name], tokenizer)
    total = sum(p.stat().st_size for p in OUT.rglob("*") if p.is_file() and not p.is_symlink())
    print(f"tests/goldens: {total} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
