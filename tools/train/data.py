"""Turns examples into packed batches of tokens, the same for the same seed whatever the number of worker processes."""
import dataclasses
import heapq
import itertools
import os
import pathlib
import random
import re
from collections.abc import Iterator

import numpy as np
import tasks
import tokenizer as tandem_tokenizer
from torch.utils.data import DataLoader, Dataset

CHUNK_STEPS = 8  # steps whose examples are made together and spread evenly over the batches
ENDLESS_CHUNKS = 10**6
ASCII_PIECES = re.compile(r" [A-Za-z]+|[A-Za-z]|[0-9]| ?[^\sA-Za-z0-9]|\s")  # the tokenizer's pattern for ASCII text
CACHED_PIECES = 100_000
Conversation = tuple[list[int], list[tuple[int, int]]]  # token ids, and where each answer begins and ends


@dataclasses.dataclass(frozen=True)
class Batch:
    """Whole conversations, longest first, in one row of tokens that is padded at its end. The padding counts as a conversation."""

    tokens: np.ndarray  # [tokens]
    positions: np.ndarray  # [tokens], counted from the begin of the conversation
    starts: np.ndarray  # [conversations + 1], where each conversation begins; the last value is the number of tokens
    chosen: np.ndarray  # [answer tokens], indices of the tokens whose next token is learned
    targets: np.ndarray  # [answer tokens], these next tokens
    weights: np.ndarray  # [answer tokens], their weights in the loss; the weights of a whole step add up to 1


class Pieces(dict[str, tuple[int, ...]]):
    """Token ids of the pieces into which the tokenizer cuts a text. A cache: the tokenizer encodes each piece once."""

    def __init__(self, tokenizer: "tandem_tokenizer.Tokenizer") -> None:
        super().__init__()
        self.tokenizer = tokenizer

    def __missing__(self, piece: str) -> tuple[int, ...]:
        ids = tuple(self.tokenizer.encode(piece).ids)
        if len(self) < CACHED_PIECES:
            self[piece] = ids
        return ids


class Encoder:
    """Writes conversations as tokens. Only what the assistant says is learned."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.tokenizer = tandem_tokenizer.load(folder)
        self.roles = {role: self.tokenizer.token_to_id(text) for role, text in tandem_tokenizer.ROLES.items()}
        self.end = self.tokenizer.token_to_id(tandem_tokenizer.END)
        self.pieces = Pieces(self.tokenizer)

    def text(self, text: str) -> list[int]:
        """Same ids as the tokenizer's, several times as fast for ASCII text without special tokens."""
        if not text.isascii() or "<|" in text:
            return self.tokenizer.encode(text).ids
        pieces = self.pieces
        return [token for piece in ASCII_PIECES.findall(text) for token in pieces[piece]]

    def conversation(self, example: tasks.Example) -> Conversation:
        ids: list[int] = []
        answers: list[tuple[int, int]] = []
        for message in example.messages + [{"role": "assistant", "content": example.answer}]:
            role = message["role"]
            ids.append(self.roles[role])
            start = len(ids)
            ids += self.text(message["content"])
            ids.append(self.end)
            if role == "assistant":
                answers.append((start, len(ids)))
        return ids, answers

    def prompt(self, example: tasks.Example) -> list[int]:
        return self.tokenizer.encode(tandem_tokenizer.render(example.messages)).ids


def make_chunk(encoder: Encoder, mixture: dict[str, float], rng: random.Random, step_tokens: int, batch_tokens: int) -> list[list[Batch]]:
    """The batches of CHUNK_STEPS steps: a list for each step. The mixture says each task's share of the examples."""
    names, bounds = list(mixture), list(itertools.accumulate(mixture.values()))
    step_batches = max(1, step_tokens // batch_tokens)
    rows = CHUNK_STEPS * step_batches
    conversations, room = [], rows * batch_tokens
    while room > 0:
        conversation = encoder.conversation(tasks.make(rng.choices(names, cum_weights=bounds)[0], rng, "train"))
        conversations.append(conversation)
        room -= len(conversation[0])
    packed = pack(conversations, rows, batch_tokens)
    return [to_batches(packed[first : first + step_batches], batch_tokens) for first in range(0, rows, step_batches)]


def pack(conversations: list[Conversation], rows: int, row_tokens: int) -> list[list[Conversation]]:
    """Spreads conversations over rows: the longest first, each into the emptiest row. Leaves out the few that do not fit."""
    packed: list[list[Conversation]] = [[] for _ in range(rows)]
    heap = [(0, row) for row in range(rows)]
    for conversation in sorted(conversations, key=lambda conversation: -len(conversation[0])):
        used, row = heap[0]
        used += len(conversation[0])
        if used <= row_tokens:
            packed[row].append(conversation)
            heapq.heapreplace(heap, (used, row))
    return packed


def to_batches(rows: list[list[Conversation]], row_tokens: int) -> list[Batch]:
    """The batches of one step."""
    batches = [to_batch(row, row_tokens) for row in rows]
    total = sum(float(batch.weights.sum(dtype=np.float64)) for batch in batches)
    return [dataclasses.replace(batch, weights=batch.weights / np.float32(total)) for batch in batches]


def to_batch(row: list[Conversation], row_tokens: int) -> Batch:
    tokens = list(itertools.chain.from_iterable(ids for ids, _ in row))
    starts = list(itertools.accumulate((len(ids) for ids, _ in row), initial=0))
    chosen: list[int] = []
    weights: list[float] = []
    for start, (_, answers) in zip(starts, row):
        for first, end in answers:
            chosen += range(start + first - 1, start + end - 1)  # a token is learned from the token before it
            weights += [(end - first) ** -0.5] * (end - first)  # a long answer counts more than a short one, but not by its length
    if len(tokens) < row_tokens:
        tokens += [0] * (row_tokens - len(tokens))
        starts.append(row_tokens)
    ids, edges = np.array(tokens, dtype=np.int16), np.array(starts, dtype=np.int32)
    indices = np.array(chosen, dtype=np.int32)
    positions = np.arange(row_tokens, dtype=np.int32) - np.repeat(edges[:-1], np.diff(edges))
    return Batch(ids, positions.astype(np.int16), edges, indices, ids[indices + 1], np.array(weights, dtype=np.float32))


class Chunks(Dataset):
    """Chunk number `index` of a stage; a worker process makes it from the seed, the stage and the number alone."""

    def __init__(self, folder: pathlib.Path, stage: "object", seed: int, first: int, chunks: int) -> None:
        self.folder, self.stage, self.seed, self.first, self.chunks = folder, stage, seed, first, chunks
        self.encoder: Encoder | None = None

    def __len__(self) -> int:
        return self.chunks

    def __getitem__(self, index: int) -> list[list[Batch]]:
        if self.encoder is None:
            self.encoder = Encoder(self.folder)
        rng = random.Random(f"{self.seed} {self.stage.name} {self.first + index}")
        return make_chunk(self.encoder, self.stage.mixture, rng, self.stage.step_tokens, self.stage.batch_tokens)


def unchanged(chunk: list[list[Batch]]) -> list[list[Batch]]:
    return chunk


def lower_priority(_worker: int) -> None:
    """The process that trains goes first."""
    os.nice(5)


class Feed:
    """The batches of each step of a stage from `first_step` on. With `workers`, that many processes start at once and work ahead."""

    def __init__(self, folder: pathlib.Path, stage: "object", seed: int, first_step: int, last_step: int | None, workers: int) -> None:
        """Without `last_step` the steps never end."""
        first_chunk = first_step // CHUNK_STEPS
        count = ENDLESS_CHUNKS if last_step is None else -(-last_step // CHUNK_STEPS) - first_chunk
        chunks = Chunks(folder, stage, seed, first_chunk, count)
        loader = DataLoader(chunks, batch_size=None, num_workers=workers, prefetch_factor=2 if workers else None, collate_fn=unchanged,
                            worker_init_fn=lower_priority)
        self.chunks = iter(loader)
        self.first_step, self.last_step, self.number = first_step, last_step, first_chunk * CHUNK_STEPS

    def __iter__(self) -> Iterator[list[Batch]]:
        for chunk in self.chunks:
            for step in chunk:
                if self.first_step <= self.number and (self.last_step is None or self.number < self.last_step):
                    yield step
                self.number += 1
