"""Adds and subtracts. The answer is the whole equation, such as `47 + 38 = 85`; the checker reads the number after `=`."""
import random

from tasks.base import Example, Split, Task, Templates, draw, single_turn
from words import COUNTABLE, NAMES

ADD = Templates(
    "{a} + {b}[| =| = ?|?| = what?]",
    "[|What is |How much is |Calculate |Compute ]{a}+{b}[|=|=?|?]",
    "[What is|How much is|Calculate|Compute|Work out|What's|Please calculate|Tell me] {a} [+|plus] {b}[?|.|]",
    "[Add|Please add|Can you add|Now add] {a} and {b}[.||?]",
    "[What is|Give me|Find|Tell me|Compute|Calculate] the sum of {a} and {b}[?|.|]",
    "I have {a} {thing}s and [get|buy|find] {b} more. How many {thing}s do I have[ now|]?",
    "{name} has {a} {thing}s and [gets|buys|finds] {b} more. How many {thing}s does {name} have[ now|]?",
    always=("{a} + {b}", "{a} + {b} =", "{a}+{b}", "What is {a} + {b}?", "What is {a} plus {b}?", "What is {a}+{b}?", "Add {a} and {b}."),
)
SUBTRACT = Templates(
    "{a} - {b}[| =| = ?|?| = what?]",
    "[|What is |How much is |Calculate |Compute ]{a}-{b}[|=|=?|?]",
    "[What is|How much is|Calculate|Compute|Work out|What's|Please calculate|Tell me] {a} [-|minus] {b}[?|.|]",
    "[Subtract|Please subtract|Can you subtract|Now subtract|Take] {b} from {a}[.||?]",
    "[What is|Give me|Find|Tell me|Compute|Calculate] the difference between {a} and {b}[?|.|]",
    "I have {a} {thing}s and [lose|sell|give away] {b}. How many {thing}s do I have [left|now]?",
    "{name} has {a} {thing}s and [loses|sells|gives away] {b}. How many {thing}s does {name} have [left|now]?",
    always=("{a} - {b}", "{a} - {b} =", "{a}-{b}", "What is {a} - {b}?", "What is {a} minus {b}?", "What is {a}-{b}?", "Subtract {b} from {a}."),
)

BARE_ADD = Templates("{a} + {b}[| =|=]", always=("{a} + {b}", "{a} + {b} ="))
BARE_SUBTRACT = Templates("{a} - {b}[| =|=]", always=("{a} - {b}", "{a} - {b} ="))


def operands(rng: random.Random, digits: int) -> tuple[int, int]:
    """At least one of the two has `digits` digits (two digits: also one)."""
    limit = 10**digits
    large = rng.randrange(0 if digits == 2 else limit // 10, limit)
    other = rng.randrange(limit if rng.random() < 0.8 else limit // 10)
    return (large, other) if rng.random() < 0.5 else (other, large)


def fill(rng: random.Random, template: str, a: int, b: int) -> str:
    return template.format(a=a, b=b, thing=rng.choice(COUNTABLE), name=rng.choice(NAMES))


def add(rng: random.Random, split: Split, digits: int, templates: Templates = ADD) -> Example:
    a, b = draw(split, lambda: operands(rng, digits), key=sorted)
    prompt = fill(rng, templates.pick(rng, split), a, b)
    return single_turn(f"add_{digits}", prompt, f"{a} + {b} = {a + b}", "number", a + b)


def subtract(rng: random.Random, split: Split, digits: int, templates: Templates = SUBTRACT) -> Example:
    a, b = draw(split, lambda: operands(rng, digits), key=sorted)
    if a < b and (digits > 2 or rng.random() < 0.8):  # a few results are below zero, but only of short numbers
        a, b = b, a
    template = templates.pick(rng, split)
    while a < b and "have" in template:
        template = templates.pick(rng, split)
    return single_turn(f"subtract_{digits}", fill(rng, template, a, b), f"{a} - {b} = {a - b}", "number", a - b)


def drill(rng: random.Random, split: Split, digits: int) -> Example:
    """A bare sum: the shortest prompt from which the arithmetic itself is learned. Only for training."""
    return add(rng, split, digits, BARE_ADD) if rng.random() < 0.6 else subtract(rng, split, digits, BARE_SUBTRACT)


TASKS = [
    Task("add_2", lambda rng, split: add(rng, split, 2)),
    Task("add_3", lambda rng, split: add(rng, split, 3)),
    Task("subtract_2", lambda rng, split: subtract(rng, split, 2)),
    Task("subtract_3", lambda rng, split: subtract(rng, split, 3)),
]
DRILLS = [
    Task("sum_drill", lambda rng, split: drill(rng, split, 2)),
    Task("sum_drill_3", lambda rng, split: drill(rng, split, 3)),
]
