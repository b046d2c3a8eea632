"""Turns examples into packed batches of tokens, the same for the same seed whatever the number of worker processes."""
import dataclasses
import gc
import heapq
import itertools
import multiprocessing
import os
import pathlib
import random
import re
import signal
from collections.abc import Iterator
from multiprocessing.connection import Connection

import numpy as np
import tasks
import tokenizer as tandem_tokenizer
from recipe import Limits, Stage

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
            ids.append(self.roles[message["role"]])
            start = len(ids)
            ids += self.text(message["content"])
            ids.append(self.end)
            if message["role"] == "assistant":
                answers.append((start, len(ids)))
        return ids, answers

    def prompt(self, example: tasks.Example) -> list[int]:
        ids, answers = self.conversation(example)
        return ids[: answers[-1][0]]


def make_chunk(encoder: Encoder, stage: Stage, seed: int, number: int) -> list[list[Batch]]:
    """The batches of CHUNK_STEPS steps: a list for each step. They depend on the seed, the stage and the number alone."""
    rng = random.Random(f"{seed} {stage.name} {number}")
    names, bounds = list(stage.mixture), list(itertools.accumulate(stage.mixture.values()))
    step_batches = max(1, stage.step_tokens // stage.batch_tokens)
    rows = CHUNK_STEPS * step_batches
    conversations, room = [], rows * stage.batch_tokens
    while room > 0:
        conversation = encoder.conversation(tasks.make(rng.choices(names, cum_weights=bounds)[0], rng, "train"))
        conversations.append(conversation)
        room -= len(conversation[0])
    packed = pack(conversations, rows, stage.batch_tokens, stage.limits)
    return [to_batches(packed[first : first + step_batches], stage.batch_tokens, stage.limits) for first in range(0, rows, step_batches)]


def pack(conversations: list[Conversation], rows: int, row_tokens: int, limits: Limits | None) -> list[list[Conversation]]:
    """Spreads conversations over rows: the longest first, each into the emptiest row. Leaves out the few that do not fit."""
    packed: list[list[Conversation]] = [[] for _ in range(rows)]
    learned = [0] * rows
    heap = [(0, row) for row in range(rows)]
    for conversation in sorted(conversations, key=lambda conversation: -len(conversation[0])):
        used, row = heap[0]
        ids, answers = conversation
        used += len(ids)
        learned_after = learned[row] + sum(end - first for first, end in answers)
        # The padding at the end of a row counts as a conversation, too.
        fits = limits is None or (len(ids) <= limits.length and len(packed[row]) + 1 < limits.conversations and learned_after <= limits.learned)
        if used <= row_tokens and fits:
            packed[row].append(conversation)
            learned[row] = learned_after
            heapq.heapreplace(heap, (used, row))
    return packed


def to_batches(rows: list[list[Conversation]], row_tokens: int, limits: Limits | None) -> list[Batch]:
    """The batches of one step."""
    batches = [to_batch(row, row_tokens, limits) for row in rows]
    total = sum(float(batch.weights.sum(dtype=np.float64)) for batch in batches)
    return [dataclasses.replace(batch, weights=batch.weights / np.float32(total)) for batch in batches]


def to_batch(row: list[Conversation], row_tokens: int, limits: Limits | None) -> Batch:
    """With limits all arrays have the sizes that these allow: at the end there are empty conversations and tokens of weight 0."""
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
    if limits is not None:
        starts += [row_tokens] * (limits.conversations + 1 - len(starts))
        weights += [0.0] * (limits.learned - len(weights))
        chosen += [0] * (limits.learned - len(chosen))
    ids, edges = np.array(tokens, dtype=np.int16), np.array(starts, dtype=np.int32)
    indices = np.array(chosen, dtype=np.int32)
    positions = np.arange(row_tokens, dtype=np.int32) - np.repeat(edges[:-1], np.diff(edges))
    return Batch(ids, positions.astype(np.int16), edges, indices, ids[indices + 1], np.array(weights, dtype=np.float32))


def work(folder: pathlib.Path, stage: Stage, seed: int, numbers: range, pipe: Connection) -> None:
    """The main function of a worker process: makes the chunks of these numbers and waits for each to be taken."""
    os.nice(5)  # the process that trains has priority
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    gc.disable()  # there are no cycles, and many lists to search
    encoder = Encoder(folder)
    for number in numbers:
        pipe.send(make_chunk(encoder, stage, seed, number))


class Feed:
    """The batches of each step of a stage from `first_step` on. With `workers`, that many processes start at once and work ahead.

    Worker w of n makes the chunks w, w + n, w + 2n and so on.
    """

    def __init__(self, folder: pathlib.Path, stage: Stage, seed: int, first_step: int, last_step: int | None, workers: int) -> None:
        """Without `last_step` the steps never end."""
        self.folder, self.stage, self.seed, self.first_step, self.last_step = folder, stage, seed, first_step, last_step
        last_chunk = ENDLESS_CHUNKS if last_step is None else -(-last_step // CHUNK_STEPS)
        self.numbers = range(first_step // CHUNK_STEPS, last_chunk)
        self.pipes: list[Connection] = []
        self.processes = []
        context = multiprocessing.get_context("fork")
        for worker in range(workers):
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=work, args=(folder, stage, seed, self.numbers[worker::workers], sender), daemon=True)
            process.start()
            sender.close()
            self.pipes.append(receiver)
            self.processes.append(process)

    def chunks(self) -> Iterator[list[list[Batch]]]:
        if self.pipes:
            for number, pipe in zip(self.numbers, itertools.cycle(self.pipes)):
                yield pipe.recv()
        else:
            encoder = Encoder(self.folder)
            for number in self.numbers:
                yield make_chunk(encoder, self.stage, self.seed, number)

    def __iter__(self) -> Iterator[list[Batch]]:
        number = self.numbers.start * CHUNK_STEPS
        for chunk in self.chunks():
            for step in chunk:
                if self.first_step <= number and (self.last_step is None or number < self.last_step):
                    yield step
                number += 1

    def close(self) -> None:
        for process in self.processes:
            process.kill()
