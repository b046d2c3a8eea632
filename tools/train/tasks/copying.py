"""Repeats a text exactly: words, made-up words, numbers and punctuation."""
import random

from tasks.base import Example, Split, Task, Templates, draw, random_word, single_turn
from words import CITIES, NAMES, PLAIN_WORDS

COPY = Templates(
    '[Repeat|Please repeat|Copy|Please copy|Say|Write] [exactly|this|this text|this exactly|the text|after me]: "{text}"',
    "[Repeat|Please repeat|Copy|Please copy|Say|Write] [exactly|this|this text|this exactly|the text|after me]:\n{text}",
    '[Repeat|Please repeat|Copy|Please copy] "{text}"[| exactly][.|]',
    '"{text}"\n[Repeat|Please repeat|Copy|Please copy] [this|this text|the text][| exactly].',
    always=('Repeat exactly: "{text}"', 'Repeat this: "{text}"', 'Copy this: "{text}"', "Repeat exactly:\n{text}"),
)


def piece(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.5:
        return rng.choice(PLAIN_WORDS)
    if kind < 0.65:
        return rng.choice(NAMES + CITIES)
    if kind < 0.85:
        return str(rng.randrange(10 ** rng.randint(1, 5)))
    return random_word(rng, 1, 8)


def text(rng: random.Random, longest: int) -> str:
    pieces = [piece(rng) + (rng.choice(",;:!?-+") if rng.random() < 0.15 else "") for _ in range(rng.randint(1, longest))]
    return " ".join(pieces) + rng.choice(("", "", ".", "!", "?"))


def copy(rng: random.Random, split: Split) -> Example:
    words = draw(split, lambda: text(rng, rng.choice((4, 8, 16))))
    return single_turn("copy", COPY.pick(rng, split).format(text=words), words)


TASKS = [Task("copy", copy)]
