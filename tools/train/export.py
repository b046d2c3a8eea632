#!/usr/bin/env python3
"""Writes a trained state as a Hugging Face model folder: weights in bfloat16, configuration, tokenizer and model card.

Usage: tools/train/export.py FOLDER OUT [--recipe 1m|full] [--dtype bfloat16|float32]     FOLDER: of train.py
"""
import argparse
import json
import pathlib
import shutil

import safetensors_file
import tokenizer as tandem_tokenizer
import torch
from model import Llama, Shape
from recipe import RECIPES

MOST_TOKENS = 256  # of an answer; right answers have at most 160, and to noise the model may repeat itself
CARD = pathlib.Path(__file__).resolve().parent / "model_card.md"


def config(shape: Shape, tokenizer: tandem_tokenizer.Tokenizer, dtype: str) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": shape.vocabulary, "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate, "num_hidden_layers": shape.layers, "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads, "head_dim": shape.head_dim, "max_position_embeddings": shape.context,
        "rope_theta": shape.rope_theta, "rms_norm_eps": shape.norm_epsilon, "hidden_act": "silu", "attention_bias": False,
        "mlp_bias": False, "tie_word_embeddings": True, "torch_dtype": dtype, "use_cache": True,
        "bos_token_id": None, "eos_token_id": tokenizer.token_to_id(tandem_tokenizer.END),
        "pad_token_id": tokenizer.token_to_id(tandem_tokenizer.PAD),
    }


def write(model: Llama, tokenizer_folder: pathlib.Path, out: pathlib.Path, dtype: str = "bfloat16") -> None:
    tokenizer = tandem_tokenizer.load(tokenizer_folder)
    assert tokenizer.get_vocab_size() == model.shape.vocabulary, "the tokenizer and the model differ in their number of tokens"
    final, out = out, out.with_name(out.name + ".partial")
    out.mkdir(parents=True, exist_ok=True)
    weights = {f"model.{name}": value.to(getattr(torch, dtype)) for name, value in model.state_dict().items()}
    safetensors_file.write(weights, out / "model.safetensors")
    settings = config(model.shape, tokenizer, dtype)
    (out / "config.json").write_text(json.dumps(settings, indent=2) + "\n")
    generation = {"eos_token_id": settings["eos_token_id"], "pad_token_id": settings["pad_token_id"], "do_sample": False,
                  "temperature": 0.0, "max_new_tokens": MOST_TOKENS}
    (out / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
    tandem_tokenizer.save(tokenizer, out, model.shape.context)
    if CARD.exists():
        shutil.copyfile(CARD, out / "README.md")
    shutil.rmtree(final, ignore_errors=True)
    out.rename(final)  # whole from the moment it is there


def read(folder: pathlib.Path) -> Llama:
    """The model of an exported folder, in float32."""
    settings = json.loads((folder / "config.json").read_text())
    shape = Shape(settings["vocab_size"], settings["hidden_size"], settings["intermediate_size"], settings["num_hidden_layers"],
                  settings["num_attention_heads"], settings["num_key_value_heads"], settings["max_position_embeddings"],
                  settings["rope_theta"], settings["rms_norm_eps"])
    model = Llama(shape)
    load(model, folder / "model.safetensors")
    return model


def load(model: Llama, path: pathlib.Path) -> None:
    weights = safetensors_file.read(path)
    model.load_state_dict({name.removeprefix("model."): tensor.float() for name, tensor in weights.items()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--recipe", choices=RECIPES, default="full")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    arguments = parser.parse_args()
    model = Llama(RECIPES[arguments.recipe].shape)
    state = torch.load(arguments.folder / "state.pt", map_location="cpu", weights_only=True)
    model.load_state_dict(state["model"])
    write(model, arguments.folder / "tokenizer", arguments.out, arguments.dtype)
    size = (arguments.out / "model.safetensors").stat().st_size
    print(f"{arguments.out}: {sum(p.numel() for p in model.parameters())} parameters, {size} bytes, after stage {state['stage']} step {state['step']}")


if __name__ == "__main__":
    main()
