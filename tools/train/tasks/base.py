"""What every task is made of: an example, prompt templates with their split, and the split of the data."""
import dataclasses
import itertools
import random
import re
import zlib
from collections.abc import Callable
from typing import Any, Literal

Split = Literal["train", "held_out"]
Message = dict[str, str]
HELD_OUT_TEMPLATES = 6  # one template in six is never trained on
HELD_OUT_DATA = 10  # and one set of operands, word or list in ten

ARTICLE = re.compile(r"\b([Aa])(?= [aeiou])")
CHOICE = re.compile(r"\[([^\[\]]*)\]")
PIECE = re.compile(r" [^\W\d_]+|\w| ?[^\s\w]|\s")  # about what the tokenizer cuts: good enough to aim at a length


@dataclasses.dataclass(frozen=True)
class Example:
    """One conversation that ends with a question, the answer to be learned, and how an answer is judged."""

    task: str
    messages: list[Message]
    answer: str
    checker: str
    expected: Any


@dataclasses.dataclass(frozen=True)
class Task:
    """A named generator. `make` takes a random generator and the split whose templates and data it may use."""

    name: str
    make: Callable[[random.Random, Split], Example]


def expand(pattern: str) -> list[str]:
    """All texts of a pattern in which [a|b|] stands for one of its alternatives; {slots} are left for str.format."""
    parts = CHOICE.split(pattern)
    choices = [part.split("|") if index % 2 else [part] for index, part in enumerate(parts)]
    return ["".join(combination) for combination in itertools.product(*choices)]


def held_out_by_hash(text: str, one_in: int) -> bool:
    return zlib.crc32(text.encode()) % one_in == 0


class Templates:
    """Prompt templates in two disjoint sets: those trained on and those held out. `always`: the plainest ones, never held out."""

    def __init__(self, *patterns: str, always: tuple[str, ...] = ()) -> None:
        every = sorted({text for pattern in patterns for text in expand(pattern)})
        unknown = set(always) - set(every)
        assert not unknown, f"no pattern writes {unknown}"
        self.held_out = [text for text in every if held_out_by_hash(text, HELD_OUT_TEMPLATES) and text not in always]
        self.train = [text for text in every if text not in self.held_out]
        if not self.held_out:
            self.held_out = [self.train.pop()]
        # A pattern with many alternatives must not crowd out one with few: sets by pattern, in the order given.
        self._groups = {"train": [], "held_out": []}
        for pattern in patterns:
            texts = set(expand(pattern))
            for split, allowed in (("train", self.train), ("held_out", self.held_out)):
                group = [text for text in allowed if text in texts]
                if group:
                    self._groups[split].append(group)

    def pick(self, rng: random.Random, split: Split) -> str:
        return rng.choice(rng.choice(self._groups[split]))


def draw(split: Split, make: Callable[[], Any], key: Callable[[Any], Any] = lambda data: data) -> Any:
    """Draws data until one belongs to the split, so that no held-out data is ever trained on. Data of one key stay together."""
    while True:
        data = make()
        if held_out_by_hash(repr(key(data)), HELD_OUT_DATA) == (split == "held_out"):
            return data


def with_articles(text: str) -> str:
    """Makes `a` into `an` before a vowel, for templates that are filled with any word."""
    return ARTICLE.sub(r"\1n", text)


def single_turn(task: str, prompt: str, answer: str, checker: str = "exact", expected: Any = None) -> Example:
    return Example(task, [{"role": "user", "content": prompt}], answer, checker, answer if expected is None else expected)


def count_pieces(text: str) -> int:
    """About how many tokens a text has."""
    return len(PIECE.findall(text))


def random_word(rng: random.Random, shortest: int, longest: int) -> str:
    """A made-up word: half of them can be pronounced, half are any letters."""
    length = rng.randint(shortest, longest)
    if rng.random() < 0.5:
        return "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(length))
    first = rng.random() < 0.5
    return "".join(rng.choice("aeiou" if (index % 2 == 0) == first else "bcdfghjklmnprstvwz") for index in range(length))
