"""Continues a little story of a fixed grammar. Right is any continuation of the grammar that keeps to the hero and the pronoun."""
import random

from tasks.base import Example, Split, Task, Templates, draw, single_turn, with_articles
from words import ANIMALS, COLOURS, JOBS, MEN, NAMES, PLACES, THINGS, WOMEN

CONTINUE = Templates(
    "[Continue|Please continue|Go on with|Finish|Please finish] [the story|this story|this little story|the tale]: {start}",
    "[Continue|Please continue|Go on with|Finish|Please finish] [the story|this story|this little story|the tale].\n\n{start}",
    "{start}\n\n[Continue|Please continue|Go on with|Finish|Please finish] [the story|this story|this little story|the tale].",
    "[Tell|Tell me] how [the story|this story|this little story] [goes on|ends]: {start}",
    always=("Continue the story: {start}", "Continue this story: {start}"),
)
START = Templates(
    "[One day|Once|One morning|One evening], {name} the {who} [went|walked|came|ran] to the {place}.",
    "{name} was a [young|kind|clever|brave|happy|little] {who} who lived [near|in|by] the {place}.",
    "Once there was a [young|kind|clever|brave|happy|little] {who} called {name} who lived [near|in|by] the {place}.",
)
# What follows, one sentence of each line. {he}, {him} and {his} are the hero's.
SENTENCES = (
    ("found", "saw", "lost", "bought"),
    ("was happy and", "was sad and", "was tired and", "laughed and", "smiled and"),
    ("went home", "sang a song", "sat down", "danced", "began to cry", "began to sing"),
)
FILLER = (
    "{name} went to the {place}.", "{name} saw a {colour} {thing}.", "The {animal} sat in the {place}.", "It was a quiet day in the {place}.",
    "{name} lost a {thing} near the {place}.", "The {animal} and the {animal} went home.", "The {job} had a {colour} {thing}.",
    "There was a {thing} on the table.", "{name} and {name} walked to the {place}.",
)


def filler_sentence(rng: random.Random) -> str:
    """A sentence that says nothing a look-up asks for, with the space before it."""
    text = rng.choice(FILLER)
    for slot, choices in (("{name}", NAMES), ("{place}", PLACES), ("{colour}", COLOURS), ("{thing}", THINGS), ("{animal}", ANIMALS),
                          ("{job}", JOBS)):
        while slot in text:
            text = text.replace(slot, rng.choice(choices), 1)
    return " " + with_articles(text)


def continuation(rng: random.Random, name: str, he: str, his: str) -> str:
    colour, thing, friend = rng.choice(COLOURS), rng.choice(THINGS), rng.choice(ANIMALS)
    verb, mood, end = (rng.choice(choices) for choices in SENTENCES)
    text = (f"There {he} {verb} a {colour} {thing}. Then {name} showed the {thing} to {his} friend, the {friend}. "
            f"In the end {he} {mood} {end}.")
    return with_articles(text)


def grammar(name: str, he: str, his: str) -> str:
    """The pattern of every right continuation. That the same thing is named twice is a matter of taste and not checked."""
    def one_of(choices: tuple[str, ...]) -> str:
        return "(?:" + "|".join(choices) + ")"

    things = one_of(THINGS)
    verb, mood, end = (one_of(choices) for choices in SENTENCES)
    # Commas and full stops stand in classes, so that no backslash is needed.
    return (f"There {he} {verb} an? {one_of(COLOURS)} {things}[.] Then {name} showed the {things} to {his} friend, "
            f"the {one_of(ANIMALS)}[.] In the end {he} {mood} {end}[.]")


def story(rng: random.Random, split: Split) -> Example:
    woman = rng.random() < 0.5
    he, his = ("she", "her") if woman else ("he", "his")

    def begin() -> tuple[str, str]:
        name = rng.choice(WOMEN if woman else MEN)
        start = START.pick(rng, split).format(name=name, who=rng.choice(ANIMALS + JOBS), place=rng.choice(PLACES))
        return name, with_articles(start)

    name, start = draw(split, begin)
    prompt = CONTINUE.pick(rng, split).format(start=start)
    return single_turn("story", prompt, continuation(rng, name, he, his), "pattern", grammar(name, he, his))


TASKS = [Task("story", story)]
