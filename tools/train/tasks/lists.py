"""Compares two numbers and sorts short lists of them."""
import random

from tasks.base import Example, Split, Task, Templates, draw, single_turn

LARGER = "[larger|bigger|greater|higher]"
SMALLER = "[smaller|less|lower]"
WHICH_LARGER = Templates(
    f"[Which is|Which number is|What is|Tell me which is] {LARGER}[,|:] {{a}} or {{b}}?",
    "[Give me|Find|What is|Tell me] the [larger|bigger|greater] [of|number of] {a} and {b}[.|?]",
    always=("Which is larger, {a} or {b}?", "Which number is larger, {a} or {b}?", "Which is bigger, {a} or {b}?"),
)
WHICH_SMALLER = Templates(
    f"[Which is|Which number is|What is|Tell me which is] {SMALLER}[,|:] {{a}} or {{b}}?",
    "[Give me|Find|What is|Tell me] the smaller [of|number of] {a} and {b}[.|?]",
)
IS_LARGER = Templates(f"[Is|Tell me: is|Please tell me: is|Now, is] {{a}} {LARGER} than {{b}}?")
IS_SMALLER = Templates(f"[Is|Tell me: is|Please tell me: is|Now, is] {{a}} {SMALLER} than {{b}}?")
ASCENDING = Templates(
    "[Sort|Please sort|Order|Can you sort] [these numbers|the numbers|this list|the list][| from small to large| in ascending order]"
    "[: {list}|: {list}.|:\n{list}]",
    "[Put|Please put|Write] [these numbers|the numbers] [in order|in ascending order|from small to large][: {list}|:\n{list}]",
    "{list}\n[Sort|Please sort|Order] [these numbers|the numbers|this list][| from small to large].",
    always=("Sort these numbers: {list}", "Sort these numbers: {list}.", "Sort these numbers from small to large: {list}"),
)
DESCENDING = Templates(
    "[Sort|Please sort|Order|Can you sort] [these numbers|the numbers|this list|the list] [from large to small|in descending order]"
    "[: {list}|: {list}.|:\n{list}]",
    "[Put|Please put|Write] [these numbers|the numbers] [in descending order|from large to small][: {list}|:\n{list}]",
    "{list}\n[Sort|Please sort|Order] [these numbers|the numbers|this list] [from large to small|in descending order].",
)
LARGEST = Templates("[What is|Find|Give me|Tell me] the [largest|biggest|greatest] number [in this list|of these][: {list}|:\n{list}]")
SMALLEST = Templates("[What is|Find|Give me|Tell me] the smallest number [in this list|of these][: {list}|:\n{list}]")


def two_numbers(rng: random.Random) -> tuple[int, int]:
    limit = rng.choice((10, 100, 100, 1000, 1000))
    a, b = rng.randrange(limit), rng.randrange(limit)
    if rng.random() < 0.2:  # a near miss: one digit changed
        b = max(0, a + rng.choice((-100, -10, -2, -1, 1, 2, 10, 100)))
    return (a, b) if a != b else (a, b + 1)


def compare(rng: random.Random, split: Split) -> Example:
    a, b = draw(split, lambda: two_numbers(rng), key=sorted)
    kind = rng.randrange(4)
    template = (WHICH_LARGER, WHICH_SMALLER, IS_LARGER, IS_SMALLER)[kind].pick(rng, split)
    answer = (str(max(a, b)), str(min(a, b)), "Yes." if a > b else "No.", "Yes." if a < b else "No.")[kind]
    return single_turn("compare", template.format(a=a, b=b), answer)


def numbers(rng: random.Random, shortest: int, longest: int) -> list[int]:
    limit = rng.choice((10, 100, 100, 100, 1000))
    return [rng.randrange(limit) for _ in range(rng.randint(shortest, longest))]


def join(values: list[int]) -> str:
    return ", ".join(map(str, values))


def sort(rng: random.Random, split: Split, name: str, shortest: int, longest: int) -> Example:
    values = draw(split, lambda: numbers(rng, shortest, longest))
    kind = rng.choice((0, 0, 0, 1, 1, 2, 3))
    template = (ASCENDING, DESCENDING, LARGEST, SMALLEST)[kind].pick(rng, split)
    ordered = sorted(values)
    answer = (join(ordered), join(ordered[::-1]), str(ordered[-1]), str(ordered[0]))[kind]
    return single_turn(name, template.format(list=join(values)), answer)


TASKS = [
    Task("compare", compare),
    Task("sort_4", lambda rng, split: sort(rng, split, "sort_4", 2, 4)),
    Task("sort_8", lambda rng, split: sort(rng, split, "sort_8", 3, 8)),
]
