"""Several turns: short tasks one after another, and what the user said of themselves in an earlier turn."""
import random

from tasks import about, arithmetic, copying, letters, lists, refusal, spelling
from tasks.base import Example, Split, Task, Templates, draw, with_articles
from words import CITIES, COLOURS, NAMES, THINGS

# What the smallest model learns, too.
BASIC = [*(task for task in arithmetic.TASKS if task.name.endswith("_2")), *(task for task in lists.TASKS if task.name == "compare"),
         *copying.TASKS, *about.TASKS, *refusal.TASKS]
SHORT = [*arithmetic.TASKS, *lists.TASKS, *letters.TASKS, *spelling.TASKS, *copying.TASKS, *about.TASKS, *refusal.TASKS]
FACTS = (
    (NAMES, Templates("[My name is|I am called|You can call me|Hello, my name is|Hi, I am called] {value}[.|!]"),
     "Hello, {value}!", Templates("[What is|What's|Tell me|Do you know|Do you remember] my name[?|]"), "Your name is {value}."),
    (CITIES, Templates("I [live|work] in {value}[.|!]", "[My home is|I come from|My city is] {value}[.|!]"),
     "{value} is a nice city.", Templates("[Where do I live|What is my city|Do you remember my city|Tell me my city][?|]"), "Your city is {value}."),
    (COLOURS, Templates("[I like|My favourite colour is|I love the colour|The colour I like is] {value}[.|!]"),
     "That is a nice colour.", Templates("[What is|What's|Do you remember|Tell me] my [favourite |]colour[?|]"), "Your colour is {value}."),
    (THINGS, Templates("[I have a|I bought a|I own a|My new thing is a] {value}[.|!]"),
     "That is a nice thing to have.", Templates("[What do I have|What did I buy|What do I own|What thing is mine][?|]"), "You have a {value}."),
)


def remember(rng: random.Random, split: Split, name: str, short: list[Task]) -> Example:
    values, tell, reply, ask, answer = rng.choice(FACTS)
    value = draw(split, lambda: rng.choice(values))
    messages = [{"role": "user", "content": with_articles(tell.pick(rng, split).format(value=value))},
                {"role": "assistant", "content": reply.format(value=value)}]
    for _ in range(rng.randint(0, 2)):
        between = rng.choice(short).make(rng, split)
        messages += [*between.messages, {"role": "assistant", "content": between.answer}]
    messages.append({"role": "user", "content": ask.pick(rng, split)})
    right = with_articles(answer.format(value=value))
    return Example(name, messages, right, "exact", right)


def several(rng: random.Random, split: Split, name: str, short: list[Task]) -> Example:
    messages = []
    for _ in range(rng.randint(1, 3)):
        earlier = rng.choice(short).make(rng, split)
        messages += [*earlier.messages, {"role": "assistant", "content": earlier.answer}]
    last = rng.choice(short).make(rng, split)
    return Example(name, messages + last.messages, last.answer, last.checker, last.expected)


def turns(rng: random.Random, split: Split, name: str, short: list[Task]) -> Example:
    return remember(rng, split, name, short) if rng.random() < 0.5 else several(rng, split, name, short)


TASKS = [
    Task("turns", lambda rng, split: turns(rng, split, "turns", SHORT)),
    Task("turns_basic", lambda rng, split: turns(rng, split, "turns_basic", BASIC)),
]
