"""Counts letters of a word in quotes, which the tokenizer shows letter by letter; of a word of the lists also without quotes."""
import random

from tasks.base import Example, Split, Task, Templates, draw, random_word, single_turn
from words import PLAIN_WORDS

COUNT = Templates(
    '[How many times does|How often does] the letter "{letter}" [occur|appear|come] in [the word |]"{word}"?',
    '[Count|Please count] the letter "{letter}" in [the word |]"{word}"[.|]',
    'How many ["{letter}"|letters "{letter}"] are [there |]in [the word |]"{word}"?',
    always=('How many times does the letter "{letter}" occur in "{word}"?', 'How many "{letter}" are in "{word}"?'),
)
WITHOUT_QUOTES = Templates(
    "[How many times does|How often does] the letter {letter} [occur|appear|come] in [the word |]{word}?",
    "[Count|Please count] the letter {letter} in [the word |]{word}[.|]",
    "How many letters {letter} are [there |]in [the word |]{word}?",
)
WITHOUT_QUOTES_SHARE = 0.2
LENGTH = Templates(
    'How many letters [are in|are there in] [the word |]"{word}"?',
    'How many letters does [the word |]"{word}" have?',
    '[Count|Please count] the letters [of|in] [the word |]"{word}"[.|]',
    '[What is|Tell me|Give me] the number of letters [of|in] [the word |]"{word}"[?|.]',
)


def any_word(rng: random.Random, shortest: int = 2, longest: int = 10) -> str:
    return rng.choice(PLAIN_WORDS) if rng.random() < 0.4 else random_word(rng, shortest, longest)


def word_with_repeats(rng: random.Random) -> str:
    """In half of the words one letter is put in more often, so that counts above one are common."""
    word = any_word(rng)
    if rng.random() < 0.5:
        letter = rng.choice(word)
        for _ in range(rng.randint(1, 3)):
            at = rng.randint(0, len(word))
            word = word[:at] + letter + word[at:]
    return word[:12]


def count_letters(rng: random.Random, split: Split) -> Example:
    if rng.random() < WITHOUT_QUOTES_SHARE:  # such a word is one token, so its letters are known only if it was trained on
        word = rng.choice(PLAIN_WORDS)
        letter = rng.choice(word) if rng.random() < 0.8 else rng.choice("abcdefghijklmnopqrstuvwxyz")
        prompt = WITHOUT_QUOTES.pick(rng, split).format(letter=letter, word=word)
        return single_turn("count_letters", prompt, str(word.count(letter)))
    word = draw(split, lambda: word_with_repeats(rng))
    if rng.random() < 0.3:
        return single_turn("count_letters", LENGTH.pick(rng, split).format(word=word), str(len(word)))
    letter = rng.choice(word) if rng.random() < 0.85 else rng.choice("abcdefghijklmnopqrstuvwxyz")
    prompt = COUNT.pick(rng, split).format(letter=letter, word=word)
    return single_turn("count_letters", prompt, str(word.count(letter)))


TASKS = [Task("count_letters", count_letters)]
