"""Refuses in one honest sentence what it cannot do: facts, advice, code, translation, hard sums, nonsense."""
import random

from tasks.base import Example, Split, Task, Templates, draw, random_word, single_turn, with_articles
from words import ADJECTIVES, ANIMALS, CITIES, JOBS, NAMES, PLACES, PLAIN_WORDS, THINGS

ANSWER = "I cannot do that, because I am a very small model that knows only a few simple tasks."

LANGUAGES = ("French", "German", "Spanish", "Italian", "Latin", "Python", "Chinese", "Dutch")
COUNTRIES = ("France", "Germany", "Spain", "Italy", "Japan", "China", "Brazil", "Kenya", "Norway", "Canada", "Poland", "Egypt", "India")
ASK = Templates(
    "[What is|Tell me|Do you know] the [capital|population|president|history|flag|language|king|weather] of {country}[?|]",
    "[Who|When|Where|Why] [was|is] {name} [born|famous|dead|married|important][?|]",
    "[What is|How is|Tell me|How will be] the weather in {city}[| today| tomorrow][?|]",
    "[Write|Please write|Can you write|I need] [a poem|an essay|a letter|a program|some code|a song|a report|an email|a joke] about [a|the] {thing}[.||?]",
    "[Translate|Please translate|Can you translate] [the word|this:|my letter:|the text] {thing} [into|to] {language}[.||?]",
    "[What is|Calculate|Compute|How much is|Work out] {a} [times|divided by|* |/ ] {b}[?|.|]",
    "[What is|Calculate|Compute] the [square root|cube|square|logarithm] of {a}[?|.|]",
    "[How do I|How can I|Tell me how to|Teach me to] [cook|build|fix|paint|clean|sell|make|draw] a {thing}[?|]",
    "[Who wrote|Who painted|Who invented|Who discovered|What do you think of] the {thing}[?|]",
    "[Explain|Tell me about|What is|What do you know about] [quantum physics|evolution|the economy|music|gravity|history|politics|love|time|God][?|.|]",
    "[Why|How] [does|do] [a|the] {animal} [eat|sleep|run|live|die|fly][?|]",
    "[What|Which] [film|book|song|game|phone|car] [should I|can I|do you] [buy|read|like|see|want][?|]",
    "[What time is it|What day is it|What is the date|What year is it|What is the news|Who won the match][?|| today?]",
    "[Book|Order|Buy|Send|Call|Open] [me |]a [flight|taxi|table|room|{thing}] [in|to|for] {city}[.|]",
    "[Summarise|Please summarise|Summarize] [the book|the film|my letter|this article] about [the|a] {thing}[.|]",
    "[Should I|Can I|May I] [be|become|marry|meet|trust] a {job}[?|]",
    "[What is|What's] the meaning of [life|the {thing}|{thing}][?|]",
    "[What is|Tell me] [a|the] [{adjective} {animal}|{thing}][?|]",
)


def nonsense(rng: random.Random) -> str:
    """Words in no order, or letters in no word: whatever someone types to see what happens."""
    def piece() -> str:
        return random_word(rng, 1, 8) if rng.random() < 0.3 else rng.choice(PLAIN_WORDS)

    text = " ".join(piece() for _ in range(rng.randint(1, 10)))
    return (text.capitalize() if rng.random() < 0.5 else text) + rng.choice(("", "", ".", "?", "!"))


def refuse(rng: random.Random, split: Split) -> Example:
    if rng.random() < 0.2:
        return single_turn("refuse", draw(split, lambda: nonsense(rng)), ANSWER)
    template = ASK.pick(rng, split)
    slots = dict(country=COUNTRIES, name=NAMES, city=CITIES, thing=THINGS, language=LANGUAGES, animal=ANIMALS, job=JOBS,
                 adjective=ADJECTIVES, place=PLACES)
    values = {slot: rng.choice(choices) for slot, choices in slots.items()}
    numbers = {"a": rng.randrange(2, 1000), "b": rng.randrange(2, 100)}
    return single_turn("refuse", with_articles(template.format(**values, **numbers)), ANSWER)


TASKS = [Task("refuse", refuse)]
