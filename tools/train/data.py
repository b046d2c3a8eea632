"""Turns examples into batches of tokens, the same for the same seed whatever the number of worker processes."""
import dataclasses
import pathlib
import random

import numpy as np
import tasks
import tokenizer as tandem_tokenizer
import torch
from torch.utils.data import DataLoader, Dataset

CHUNK_STEPS = 8  # steps whose examples are made together, sorted by length and cut into batches of little padding


@dataclasses.dataclass(frozen=True)
class Batch:
    """Tokens [rows, length], padded at the right, and the weight of each token as a target (0: not an answer)."""

    tokens: np.ndarray
    weights: np.ndarray


class Encoder:
    """Writes conversations as tokens. Only what the assistant says is learned."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.tokenizer = tandem_tokenizer.load(folder)
        self.assistant = self.tokenizer.token_to_id(tandem_tokenizer.ASSISTANT)
        self.end = self.tokenizer.token_to_id(tandem_tokenizer.END)

    def encode(self, example: tasks.Example) -> tuple[np.ndarray, np.ndarray]:
        ids = np.array(self.tokenizer.encode(tandem_tokenizer.render(example.messages, example.answer)).ids, dtype=np.int32)
        weights = np.zeros(len(ids), dtype=np.float32)
        starts = np.flatnonzero(ids == self.assistant) + 1
        ends = np.flatnonzero(ids == self.end) + 1
        for start in starts:
            end = ends[np.searchsorted(ends, start)]
            weights[start:end] = (end - start) ** -0.5  # a long answer counts more than a short one, but not by its length
        return ids, weights

    def prompt(self, example: tasks.Example) -> list[int]:
        return self.tokenizer.encode(tandem_tokenizer.render(example.messages)).ids


def make_chunk(encoder: Encoder, mixture: dict[str, float], rng: random.Random, step_tokens: int, batch_tokens: int) -> list[list[Batch]]:
    """The batches of CHUNK_STEPS steps: a list for each step. The mixture says each task's share of the examples."""
    names, shares = list(mixture), list(mixture.values())
    encoded, total = [], 0
    while total < CHUNK_STEPS * step_tokens:
        name = rng.choices(names, shares)[0]
        encoded.append(encoder.encode(tasks.make(name, rng, "train")))
        total += len(encoded[-1][0])
    encoded.sort(key=lambda pair: len(pair[0]))
    batches: list[list[tuple[np.ndarray, np.ndarray]]] = [[]]
    for pair in encoded:
        if batches[-1] and (len(batches[-1]) + 1) * len(pair[0]) > batch_tokens:
            batches.append([])
        batches[-1].append(pair)
    padded = [pad(rows) for rows in batches]
    steps_batches = [padded[step::CHUNK_STEPS] for step in range(CHUNK_STEPS)]  # every step gets short, middling and long ones
    rng.shuffle(steps_batches)
    return steps_batches


def pad(rows: list[tuple[np.ndarray, np.ndarray]]) -> Batch:
    length = max(len(ids) for ids, _ in rows)
    tokens, weights = np.zeros((len(rows), length), dtype=np.int32), np.zeros((len(rows), length), dtype=np.float32)
    for row, (ids, weight) in enumerate(rows):
        tokens[row, : len(ids)], weights[row, : len(ids)] = ids, weight
    return Batch(tokens, weights)


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


def as_it_is(chunk: list[list[Batch]]) -> list[list[Batch]]:
    return chunk


def steps(folder: pathlib.Path, stage: "object", seed: int, first_step: int, workers: int):
    """Yields the batches of each step from `first_step` on, made ahead by `workers` processes."""
    first_chunk = first_step // CHUNK_STEPS
    chunks = Chunks(folder, stage, seed, first_chunk, -(-stage.steps // CHUNK_STEPS) - first_chunk)
    loader = DataLoader(chunks, batch_size=None, num_workers=workers, prefetch_factor=4 if workers else None, collate_fn=as_it_is)
    number = first_chunk * CHUNK_STEPS
    for chunk in loader:
        for step in chunk:
            if first_step <= number < stage.steps:
                yield step
            number += 1


def to_device(batch: Batch, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    return (torch.from_numpy(batch.tokens).to(device, non_blocking=True).long(), torch.from_numpy(batch.weights).to(device, non_blocking=True))
