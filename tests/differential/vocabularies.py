"""Model folders for the comparison of tokenizers, made from the vocabularies in TANDEM_SHARED."""
import base64
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "gguf"))

import make_gguf  # noqa: E402

MARK = "\u2581"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_characters():
    """The characters that stand for bytes in byte-level vocabularies."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {**{byte: chr(byte) for byte in plain}, **{byte: chr(256 + i) for i, byte in enumerate(others)}}


BYTES = byte_characters()


def as_text(token):
    return "".join(BYTES[byte] for byte in token)


def read_tiktoken(path, most):
    """Vocabulary and merges of the first `most` ranks."""
    ranks = {}
    for line in path.read_bytes().splitlines():
        if line.strip():
            token, rank = line.split()
            if int(rank) < most:
                ranks[base64.b64decode(token)] = int(rank)
    merges = []
    for token, rank in sorted(ranks.items(), key=lambda entry: entry[1]):
        parts = [bytes([byte]) for byte in token]
        while len(parts) > 2:
            known = [(ranks[a + b], i) for i, (a, b) in enumerate(zip(parts, parts[1:])) if ranks.get(a + b, rank) < rank]
            if not known:
                break
            at = min(known)[1]
            parts[at:at + 2] = [parts[at] + parts[at + 1]]
        if len(parts) == 2:
            merges.append([as_text(parts[0]), as_text(parts[1])])
    return {as_text(token): rank for token, rank in ranks.items()}, merges


def read_sentencepiece(path):
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    vocabulary = {processor.id_to_piece(i): i for i in range(processor.get_piece_size())}
    merges = []
    for piece, rank in vocabulary.items():
        pairs = [(piece[:i], piece[i:]) for i in range(1, len(piece)) if piece[:i] in vocabulary and piece[i:] in vocabulary]
        merges += [(processor.get_score(rank), pair) for pair in sorted(pairs, key=lambda p: (vocabulary[p[0]], vocabulary[p[1]]))]
    merges.sort(key=lambda entry: -entry[0])
    return processor, vocabulary, [list(pair) for _, pair in merges]


def token(number, content, special=True, **more):
    return {"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": not special, "special": special, **more}


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def byte_level(regex=False, prefix=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def steps(*parts):
    return {"type": "Sequence", "pretokenizers": list(parts)}


def begins_with(name, number):
    return {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": name, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {name: {"id": name, "ids": [number], "tokens": [name]}}}


def tokenizer_json(vocabulary, merges, added, normalizer, pre_tokenizer, post_processor, decoder, **model):
    base = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
            "byte_fallback": False, "ignore_merges": False, "vocab": vocabulary, "merges": merges}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": normalizer, "pre_tokenizer": pre_tokenizer,
            "post_processor": post_processor, "decoder": decoder, "model": {**base, **model}}


def byte_level_files(shared, most):
    """Names and tokenizer.json of byte-level BPE, of the shapes that published models have, and of every kind of pre-tokenizer."""
    gpt2 = json.loads((shared / "gpt-2-hf/tokenizer.json").read_text())
    yield "gpt2", gpt2
    words, merges = gpt2["model"]["vocab"], gpt2["model"]["merges"]
    n = len(words)
    added = [token(n, "<L>", lstrip=True), token(n + 1, "<R>", rstrip=True), token(n + 2, "<tool>", False, normalized=False),
             token(n + 3, "<w>", False, single_word=True), token(n + 4, "foob", False, single_word=True, normalized=False), token(n + 5, "foobarq", False, normalized=False)]
    decoder = byte_level(True, True)
    for name, normalizer in (("plain", None), ("nfc", {"type": "NFC"}), ("lower", {"type": "Lowercase"})):
        yield f"added-{name}", tokenizer_json(words, merges, added, normalizer, byte_level(True), begins_with("<L>", n), decoder)
    shapes = {"digits": [{"type": "Digits", "individual_digits": True}, byte_level(True)], "punctuation": [{"type": "Punctuation", "behavior": "Contiguous"}, byte_level(True, True)],
              "whitespace": [{"type": "Whitespace"}, byte_level()], "words": [{"type": "WhitespaceSplit"}, byte_level(False, True)],
              "previous": [split(r"\p{L}+", "MergedWithPrevious"), byte_level()], "next": [split(r"\s", "MergedWithNext"), byte_level()],
              "contiguous": [split(r"[\p{N}\p{P}\s]", "Contiguous"), byte_level()], "inverted": [split(r"[^\S]", "Removed", True), byte_level()], "gpt4o": [split(GPT4O), byte_level()]}
    for name, parts in shapes.items():
        yield name, tokenizer_json(words, merges, added[:1], None, steps(*parts), None, decoder)
    words, merges = read_tiktoken(shared / "qwen2/qwen.tiktoken", most)
    n = len(words)  # where the package puts the first added token, whatever its file says
    added = [token(n, "<|endoftext|>"), token(n + 1, "<|im_start|>"), token(n + 2, "<|im_end|>"), token(n + 3, "<tool_call>", False)]
    yield "qwen2", tokenizer_json(words, merges, added, {"type": "NFC"}, steps(split(QWEN2), byte_level()), None, decoder)
    words, merges = read_tiktoken(shared / "llama-3/tokenizer.model", most)
    n = len(words)
    added = [token(n, "<|begin_of_text|>"), token(n + 1, "<|end_of_text|>"), token(n + 2, "<|eot_id|>")]
    yield "llama3", tokenizer_json(words, merges, added, None, steps(split(LLAMA3), byte_level()), begins_with("<|begin_of_text|>", n), decoder, ignore_merges=True)


def sentencepiece_file(vocabulary, merges, normalizer, pre_tokenizer, strips=True):
    added = [token(0, "<unk>"), token(1, "<s>"), token(2, "</s>")]
    parts = [{"type": "Replace", "pattern": {"String": MARK}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]
    parts += [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if strips else []
    return tokenizer_json(vocabulary, merges, added, normalizer, pre_tokenizer, begins_with("<s>", 1), {"type": "Sequence", "decoders": parts}, unk_token="<unk>",
                          fuse_unk=True, byte_fallback=True)


def prepending():
    return {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": MARK}, {"type": "Replace", "pattern": {"String": " "}, "content": MARK}]}


def metaspace(scheme):
    return {"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": False}


def write(folder, files):
    folder.mkdir(parents=True)
    for name, content in files.items():
        path = folder / name
        if isinstance(content, pathlib.Path):
            path.symlink_to(content)
        else:
            path.write_text(json.dumps(content))
    return folder


# The pre-tokenizers that GGUF files name, and BOS.
GGUF_NAMES = {"gpt2": ("gpt-2", None), "qwen2": ("qwen2", None), "llama3": ("llama-bpe", "<|begin_of_text|>")}


def write_gguf(path, name, file):
    """The same vocabulary as a tokenizer.json in a GGUF file."""
    pre, bos = GGUF_NAMES[name]
    make_gguf.write_vocabulary(path, lambda writer: make_gguf.add_byte_level(writer, file, pre), bos)
    return path


def write_sentencepiece_gguf(path, model):
    make_gguf.write_vocabulary(path, lambda writer: make_gguf.add_sentencepiece(writer, model), "<s>")
    return path
