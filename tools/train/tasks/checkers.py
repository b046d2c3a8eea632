"""Says whether an answer is right. Four checkers, simple enough to be written again in another language.

exact     expected: a text. Right is the same text, spaces and newlines at both ends left out.
any_of    expected: a list of texts. Right is one of them, as with `exact`.
number    expected: a whole number. Right is the number alone, or an equation `a + b = number` (any text before the last `=`
          made of digits, signs and spaces), with or without a full stop.
pattern   expected: a regular expression. Right is an answer that it matches from end to end. Only literal text, groups
          `(?:a|b)`, `?`, and `[...]` classes are used, which every regular expression library reads the same way.
"""
import re
from typing import Any

EQUATION = re.compile(r"(?:[-+0-9 ]*= ?)?(-?[0-9]+)\.?")


def check_exact(answer: str, expected: str) -> bool:
    return answer.strip() == expected.strip()


def check_any_of(answer: str, expected: list[str]) -> bool:
    return any(check_exact(answer, text) for text in expected)


def check_number(answer: str, expected: int) -> bool:
    match = EQUATION.fullmatch(answer.strip())
    return match is not None and int(match.group(1)) == expected


def check_pattern(answer: str, expected: str) -> bool:
    return re.fullmatch(expected, answer.strip()) is not None


CHECKERS = {"exact": check_exact, "any_of": check_any_of, "number": check_number, "pattern": check_pattern}


def is_right(answer: str, checker: str, expected: Any) -> bool:
    return CHECKERS[checker](answer, expected)
