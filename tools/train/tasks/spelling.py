"""Spells a word in quotes backwards, or letter by letter; a word of the lists also without quotes."""
import random

from tasks.base import Example, Split, Task, Templates, draw, single_turn
from tasks.letters import WITHOUT_QUOTES_SHARE, any_word
from words import PLAIN_WORDS

BACKWARDS = Templates(
    '[Spell|Please spell|Write|Can you spell|Can you write] [the word |]"{word}" [backwards|in reverse][.||?]',
    '[Reverse|Please reverse|Turn around] [the word |the letters of |]"{word}"[.|]',
    'What is [the word |]"{word}" [backwards|in reverse|spelled backwards]?',
    always=('Spell "{word}" backwards.', 'Spell "{word}" backwards', 'Reverse "{word}".', 'Write "{word}" backwards.'),
)
WITHOUT_QUOTES = Templates(
    "[Spell|Please spell|Write|Can you spell|Can you write] [the word |]{word} [backwards|in reverse][.||?]",
    "[Reverse|Please reverse|Turn around] the word {word}[.|]",
    "What is [the word |]{word} [backwards|spelled backwards]?",
)
FORWARDS = Templates(
    '[Spell|Please spell|Can you spell] [the word |]"{word}"[.||?]',
    '[Spell|Please spell|Write] [the word |]"{word}" letter by letter[.|]',
)


def spell_backwards(rng: random.Random, split: Split) -> Example:
    if rng.random() < WITHOUT_QUOTES_SHARE:  # such a word is one token, so its letters are known only if it was trained on
        word = rng.choice(PLAIN_WORDS)
        return single_turn("spell", WITHOUT_QUOTES.pick(rng, split).format(word=word), word[::-1])
    word = draw(split, lambda: any_word(rng, 2, 12))
    if rng.random() < 0.15:
        return single_turn("spell", FORWARDS.pick(rng, split).format(word=word), "-".join(word))
    return single_turn("spell", BACKWARDS.pick(rng, split).format(word=word), word[::-1])


TASKS = [Task("spell", spell_backwards)]
