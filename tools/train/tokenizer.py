#!/usr/bin/env python3
"""Makes the tokenizer of Tandem-Tiny: byte-level BPE trained on text of the generator, in Hugging Face layout.

A word is merged only after a space. Digits never merge, and a word after anything else (a quote, a line's start, the answer's
start) is cut into letters. So `Spell "word" backwards` shows the letters, and ` word` in a sentence is one token.

Usage: tools/train/tokenizer.py FOLDER
"""
import argparse
import json
import pathlib
import random

import tasks
import words
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 2048
PATTERN = r" \p{L}+|\p{L}|\p{N}| ?[^\s\p{L}\p{N}]|\s"
PAD, END, SYSTEM, USER, ASSISTANT = SPECIALS = ("<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
ROLES = {"system": SYSTEM, "user": USER, "assistant": ASSISTANT}
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'user' %}<|user|>{% elif message['role'] == 'assistant' %}<|assistant|>{% else %}<|system|>{% endif %}"
    "{{ message['content'] }}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
# Tasks whose text has made-up words would fill the vocabulary with pieces of them.
CORPUS_TASKS = ("add_2", "subtract_2", "compare", "sort_4", "look_up_100", "story", "about", "turns")
CORPUS_EXAMPLES = 4000
WORD_WEIGHT = 200  # how often each word of the lists is written besides


def corpus() -> list[str]:
    rng = random.Random("tokenizer")
    texts = []
    for name in CORPUS_TASKS:
        for _ in range(CORPUS_EXAMPLES):
            example = tasks.make(name, rng, "train")
            texts += [message["content"] for message in example.messages] + [example.answer]
    listed = [value for value in vars(words).values() if isinstance(value, tuple)]
    texts += [" " + word for word in sorted({word for group in listed for word in group})] * WORD_WEIGHT
    for module in tasks.MODULES:
        for value in vars(module).values():
            if isinstance(value, tasks.base.Templates):
                texts += [" " + text for text in value.train] * 3
    return texts


def train() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, min_frequency=5, show_progress=False,
                                  special_tokens=[AddedToken(text, special=True, normalized=False) for text in SPECIALS],
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer


def save(tokenizer: Tokenizer, folder: pathlib.Path, context: int) -> None:
    """Writes tokenizer.json, and tokenizer_config.json with the chat template in it."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    added = {str(tokenizer.token_to_id(text)): {"content": text, "special": True, "normalized": False, "lstrip": False, "rstrip": False,
                                                "single_word": False} for text in SPECIALS}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": context, "eos_token": END, "pad_token": PAD,
              "bos_token": None, "unk_token": None, "clean_up_tokenization_spaces": False, "added_tokens_decoder": added,
              "chat_template": CHAT_TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def load(folder: pathlib.Path) -> Tokenizer:
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def render(messages: list[dict[str, str]], answer: str | None = None) -> str:
    """What the chat template writes: with an answer the whole conversation, without one the prompt."""
    text = "".join(ROLES[message["role"]] + message["content"] + END for message in messages) + ASSISTANT
    return text if answer is None else text + answer + END


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder
    tokenizer = train()
    save(tokenizer, folder, context=4096)
    print(f"{folder}: {tokenizer.get_vocab_size()} tokens")


if __name__ == "__main__":
    main()
