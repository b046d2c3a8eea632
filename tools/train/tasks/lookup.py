"""Answers from a table or a short document in the prompt. The key may stand anywhere in it, up to about 3,000 tokens.

The answer is a sentence, `The code of Anna is 4512.`, so that key and attribute are said before the value.
"""
import random
from collections.abc import Callable

from tasks.base import Example, Split, Task, Templates, count_pieces, draw, single_turn
from tasks.story import filler_sentence
from words import ADJECTIVES, ANIMALS, CITIES, COLOURS, JOBS, NAMES, THINGS

QUESTION = Templates(
    "[What is|Tell me|Give me|Find|What's] the {attribute} of {key}[?|.]",
    "[Look up|Please look up|Please find] the {attribute} of {key}[.|]",
    "[Which|What] {attribute} [belongs to|does the list give for|stands beside] {key}?",
    always=("What is the {attribute} of {key}?",),
)
VALUES: dict[str, Callable[[random.Random], str]] = {
    "code": lambda rng: str(rng.randrange(10, 10000)),
    "number": lambda rng: str(rng.randrange(10, 1000)),
    "price": lambda rng: str(rng.randrange(1, 500)),
    "age": lambda rng: str(rng.randrange(1, 100)),
    "city": lambda rng: rng.choice(CITIES),
    "colour": lambda rng: rng.choice(COLOURS),
    "job": lambda rng: rng.choice(JOBS),
    "word": lambda rng: rng.choice(THINGS),
}
ROWS = ("- {key}: {value}\n", "| {key} | {value} |\n", "* {key} = {value}\n", "{key}: {value}\n", "The {attribute} of {key} is {value}.\n",
        " {key}: {value};", " The {attribute} of {key} is {value}.")
DRILL_QUESTIONS = (3, 8)  # at least and at most
PROSE = " The {attribute} of {key} is {value}."


def make_keys(rng: random.Random) -> Callable[[], str]:
    """One kind of key for a whole table: names, things, or an adjective and an animal (many share one of the two words)."""
    kind = rng.random()
    if kind < 0.5:
        return lambda: rng.choice(NAMES)
    if kind < 0.65:
        return lambda: rng.choice(CITIES)
    return lambda: f"{rng.choice(ADJECTIVES)} {rng.choice(ANIMALS)}"


def table(rng: random.Random, tokens: int) -> tuple[str, str, str, str, dict[str, str]]:
    """A document of about `tokens` tokens with its attribute, one of its keys, that key's value, and all its facts."""
    attribute = rng.choice(list(VALUES))
    value, key = VALUES[attribute], make_keys(rng)
    row = rng.choice(ROWS)
    with_prose = rng.random() < 0.4
    if with_prose:
        row = PROSE
    prose_share = rng.choice((0.3, 0.6, 0.8)) if with_prose else 0.0
    facts: dict[str, str] = {}
    parts: list[str] = []
    length, misses = 0, 0
    while length < tokens:
        name = key()
        if (facts and rng.random() < prose_share) or misses > 20:
            parts.append(filler_sentence(rng) if row is PROSE or row.startswith(" ") else filler_sentence(rng).lstrip() + "\n")
        elif name in facts:
            misses += 1
            continue
        else:
            facts[name] = value(rng)
            parts.append(row.format(attribute=attribute, key=name, value=facts[name]))
        length += count_pieces(parts[-1])
    asked = rng.choice(list(facts))
    document = "".join(parts).strip()
    if row.startswith("|"):
        document = f"| name | {attribute} |\n| --- | --- |\n{document}"
    return document, attribute, asked, facts[asked], facts


def look_up(rng: random.Random, split: Split, name: str, shortest: int, longest: int) -> Example:
    tokens = rng.randint(shortest, longest)
    document, attribute, key, value, _ = draw(split, lambda: table(rng, tokens), key=lambda made: made[:4])
    question = QUESTION.pick(rng, split).format(attribute=attribute, key=key)
    prompt = f"{question}\n\n{document}" if rng.random() < 0.2 else f"{document}\n\n{question}"
    return single_turn(name, prompt, f"The {attribute} of {key} is {value}.")


def drill(rng: random.Random, split: Split, name: str, shortest: int, longest: int) -> Example:
    """One document and several questions about it, one in each turn: more is learned from the same tokens. Only for training."""
    tokens = rng.randint(shortest, longest)
    document, attribute, _, _, facts = draw(split, lambda: table(rng, tokens), key=lambda made: made[:4])
    keys = rng.sample(list(facts), min(len(facts), rng.randint(*DRILL_QUESTIONS)))
    questions = [QUESTION.pick(rng, split).format(attribute=attribute, key=key) for key in keys]
    questions[0] = f"{questions[0]}\n\n{document}" if rng.random() < 0.2 else f"{document}\n\n{questions[0]}"
    answers = [f"The {attribute} of {key} is {facts[key]}." for key in keys]
    messages = []
    for question, answer in zip(questions, answers):
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return Example(name, messages[:-1], answers[-1], "exact", answers[-1])


def task(name: str, shortest: int, longest: int) -> Task:
    return Task(name, lambda rng, split: look_up(rng, split, name, shortest, longest))


def drill_task(name: str, shortest: int, longest: int) -> Task:
    return Task(name, lambda rng, split: drill(rng, split, name, shortest, longest))


# The question and the template take the rest of the tokens named.
TASKS = [
    task("look_up_100", 10, 80),
    task("look_up_500", 80, 460),
    task("look_up_1500", 460, 1450),
    task("look_up_3000", 1450, 2900),
]
DRILLS = [
    drill_task("look_up_drill_500", 80, 460),
    drill_task("look_up_drill_1500", 460, 1450),
    drill_task("look_up_drill_3000", 1450, 2900),
]
