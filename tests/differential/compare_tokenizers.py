#!/usr/bin/env python3
"""Tokenizes random texts with Tandem and with the packages `tokenizers` and `sentencepiece`, and prints what differs.

Usage: compare_tokenizers.py [--seed N] [--count N] [--full] [--only NAME]      (needs the packages of tests/e2e/requirements.txt)
  --count N    texts for each tokenizer (default 300)
  --full       the whole vocabularies of Qwen2 and Llama 3 instead of their first 20,000 tokens
Environment: TANDEM_SHARED  folder with vocabularies (default: shared beside the checkout)
Exit code: 0 nothing differs, 1 something does.
"""
import argparse
import os
import pathlib
import random
import sys
import tempfile
import unicodedata

import vocabularies
from driver import Driver

FRAGMENTS = [" ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", "\u00a0", "\u2003", "\u3000", "\u180e", "\u200b", "\u200d", "\u2028", "\x85", "\ufeff", "a", "b", "the", " The",
             "Hello", " world", "don't", "I'LL", "x'S", "0", "42", "2024-01-01", "3.14", "٣", "Ⅷ", "²", "½", ".", ",", "!", "?!", "...", "#", "/", "</", ">", "[INST]", ">>", "(", ")",
             "\"q\"", "'", "_", "__", "é", "e\u0301", "ß", "İ", "ﬁ", "ǆ", "中文", "日本語", "한국어", "ไทย", "हिन्दी", "עברית", "العربية", "😀", "👩‍👩‍👧", "🇫🇷", "🏽", "foo", "foobar", "foob",
             "foobarq", "xfoob", "function(){", "    return", "::", "<s>", "</s>", "<unk>", "<L>", "<R>", "<w>", "<tool>", "<|im_start|>", "<|im_end|>", "<|endoftext|>",
             "<|begin_of_text|>", "<|eot_id|>", "<tool_call>", "▁", " ▁", "▁▁", "Ġ", "Ċ", "<0x0A>", "\ufffd", "\x00", "\x01", "\x7f", "\ue000", "𝔘", "𐐀"]
BLOCKS = [(0x20, 0x7F), (0x80, 0x250), (0x300, 0x700), (0x900, 0xE80), (0x1780, 0x1820), (0x1E00, 0x2400), (0x3000, 0x3400), (0xAC00, 0xD7A4), (0xF900, 0xFFFE), (0x1F300, 0x1F650)]


def make_text(rng):
    kind = rng.random()
    if kind < 0.7:
        return "".join(rng.choice(FRAGMENTS) for _ in range(rng.choice((1, 2, 3, 5, 8, 20))))
    if kind < 0.85:
        characters = (chr(rng.randrange(*rng.choice(BLOCKS))) for _ in range(rng.choice((1, 3, 8, 20))))
        return "".join(c for c in characters if unicodedata.category(c) != "Cn")  # libraries know different versions of Unicode
    fragment = rng.choice(FRAGMENTS)
    return fragment * rng.randrange(1, 60) + rng.choice(FRAGMENTS)


class HuggingFace:
    def __init__(self, file):
        from tokenizers import Tokenizer

        self.tokenizer = Tokenizer.from_file(str(file))
        self.size = self.tokenizer.get_vocab_size()
        self.parse = True

    def encode(self, text, special):
        return self.tokenizer.encode(text, add_special_tokens=special).ids

    def decode(self, ids, skip):
        return self.tokenizer.decode(ids, skip_special_tokens=skip)


class SentencePiece:
    """Knows no special tokens in a text; BOS stands before it."""

    def __init__(self, processor):
        self.processor = processor
        self.parse = False

    def encode(self, text, special):
        return [self.processor.bos_id()] * special + self.processor.encode(text)

    def decode(self, ids, _):
        return self.processor.decode(ids)


def cases(shared, folder, most):
    """(name, model folder, reference, whether any sequence of tokens decodes the same)."""
    for name, file in vocabularies.byte_level_files(shared, most):
        path = vocabularies.write(folder / name, {"tokenizer.json": file})
        reference = HuggingFace(path / "tokenizer.json")
        yield name, path, reference, True
        if name in vocabularies.GGUF_NAMES:
            yield f"gguf-{name}", vocabularies.write_gguf(folder / f"{name}.gguf", name, file), reference, True
    model = shared / "llama-2/tokenizer.model"
    processor, words, merges = vocabularies.read_sentencepiece(model)
    for name, normalizer, pre_tokenizer in (("llama2", vocabularies.prepending(), None), ("metaspace", None, vocabularies.metaspace("first")),
                                            ("always", None, vocabularies.metaspace("always")), ("never", None, vocabularies.metaspace("never"))):
        file = vocabularies.sentencepiece_file(words, merges, normalizer, pre_tokenizer, strips=name != "never")
        path = vocabularies.write(folder / name, {"tokenizer.json": file})
        yield name, path, HuggingFace(path / "tokenizer.json"), False
    # The same vocabulary as SentencePiece's own file, with spaces as transformers' classes for it put them.
    for name, config, reference in (("model-plain", {}, SentencePiece(processor)), ("model-legacy", {"legacy": True}, HuggingFace(folder / "llama2/tokenizer.json")),
                                    ("model-new", {"legacy": False}, HuggingFace(folder / "metaspace/tokenizer.json")),
                                    ("model-bare", {"legacy": False, "add_prefix_space": False}, HuggingFace(folder / "never/tokenizer.json"))):
        yield name, vocabularies.write(folder / name, {"tokenizer.model": model, "tokenizer_config.json": config}), reference, False
    path = vocabularies.write_sentencepiece_gguf(folder / "llama2.gguf", model)
    yield "gguf-llama2", path, HuggingFace(folder / "llama2/tokenizer.json"), False


def compare(driver, case, rng, count, tell=lambda *_: None):
    """How many of `count` texts differ."""
    name, path, reference, any_ids = case
    differ = 0

    def check(what, given, wanted, answer):
        nonlocal differ
        if wanted != answer:
            differ += 1
            tell(name, what, given, wanted, answer)

    for _ in range(count):
        text = make_text(rng)
        special = rng.random() < 0.5
        ids = reference.encode(text, special)
        answer = driver.ask({"folder": str(path), "encode": text, "special": special, "parse": reference.parse})
        check("encode", text, ids, answer.get("ids", answer))
        skip = reference.parse and rng.random() < 0.5
        if any_ids and rng.random() < 0.3:
            ids = [rng.randrange(reference.size) for _ in range(rng.randrange(1, 12))]
        answer = driver.ask({"folder": str(path), "decode": ids, "skip": skip or not reference.parse})
        wanted = reference.decode(ids, skip)
        check("decode", ids, wanted, answer.get("text", answer))
        check("stream", ids, wanted, answer.get("streamed", answer))
    return differ


def shared_folder():
    beside = pathlib.Path(__file__).resolve().parents[3] / "shared"
    return pathlib.Path(os.environ.get("TANDEM_SHARED", beside)).resolve() / "tokenizers"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--only")
    options = parser.parse_args()
    shown = {}
    wrong = 0

    def tell(name, what, given, wanted, answer):
        shown[name] = shown.get(name, 0) + 1
        if shown[name] <= 3:
            print(f"{name}: {what} {given!a}\n  wanted {wanted!a}\n  Tandem {answer!a}")

    with tempfile.TemporaryDirectory() as folder, Driver() as driver:
        for case in cases(shared_folder(), pathlib.Path(folder), 1 << 30 if options.full else 20_000):
            if options.only in (None, case[0]):
                differ = compare(driver, case, random.Random(options.seed), options.count, tell)
                print(f"{case[0]}: {differ} differences in {options.count} texts", flush=True)
                wrong += differ
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
