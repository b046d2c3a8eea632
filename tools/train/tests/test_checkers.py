"""The checkers, above all against wrong answers."""
import random

import pytest
import tasks
from tasks.checkers import is_right


@pytest.mark.parametrize("answer", ["85", "85.", "47 + 38 = 85", "47+38=85", " 47 + 38 = 85\n"])
def test_a_number_may_stand_alone_or_behind_its_equation(answer):
    assert is_right(answer, "number", 85)


@pytest.mark.parametrize("answer", ["", "84", "850", "8 5", "85 86", "85 + 1", "= ", "47 + 38", "47 + 38 = 86", "85 = 47 + 38", "It is 85 or 86.",
                                    "-85", "47 + 38 = 85 = 84", "85.5", "٨٥"])
def test_a_wrong_number_is_wrong(answer):
    assert not is_right(answer, "number", 85)


def test_a_number_below_zero_needs_its_sign():
    assert is_right("3 - 81 = -78", "number", -78)
    assert not is_right("3 - 81 = 78", "number", -78)


def test_exact_forgives_only_space_at_the_ends():
    assert is_right(" drow\n", "exact", "drow")
    for wrong in ("word", "drow.", "Drow", "dr ow", "drowd", ""):
        assert not is_right(wrong, "exact", "drow")


def test_any_of_takes_each_of_its_texts_and_no_other():
    assert is_right("Yes.", "any_of", ["Yes.", "Yes"])
    assert not is_right("No.", "any_of", ["Yes.", "Yes"])


STORY = "There she saw a white pear. Then Nora showed the pear to her friend, the lamb. In the end she was sad and sang a song."


def story_pattern():
    return tasks.story.grammar("Nora", "she", "her")


def test_a_story_of_the_grammar_is_right():
    assert is_right(STORY, "pattern", story_pattern())


@pytest.mark.parametrize("change", [("There she", "There he"), ("Nora", "Nina"), ("her friend", "his friend"), ("sad and sang", "sad sang"),
                                    ("white pear", "pear white"), (". Then", " Then"), ("a song.", "a song"), ("In the end she", "In the end"),
                                    ("There", "She There"), ("a song.", "a song. The end.")])
def test_a_story_that_breaks_the_grammar_is_wrong(change):
    assert not is_right(STORY.replace(*change), "pattern", story_pattern())


@pytest.mark.parametrize("name", tasks.TASKS)
def test_the_generators_answer_is_right_and_those_of_other_prompts_are_wrong(name):
    examples = tasks.held_out(name, 40)
    rng = random.Random(1)
    for example in examples:
        assert is_right(example.answer, example.checker, example.expected)
        assert not is_right("", example.checker, example.expected)
        assert not is_right(example.answer + " " + example.answer, example.checker, example.expected)
        other = rng.choice(examples)
        same_story = example.checker == "pattern" and is_right(other.answer, example.checker, example.expected)
        if other.answer != example.answer and not (example.checker == "number" and other.expected == example.expected):
            assert same_story or not is_right(other.answer, example.checker, example.expected)


@pytest.mark.parametrize("name", [name for name in tasks.TASKS if name not in ("about", "refuse")])
def test_an_answer_with_one_character_changed_is_wrong(name):
    rng = random.Random(2)
    for example in tasks.held_out(name, 40):
        digits = [at for at, char in enumerate(example.answer) if char.isalnum()]
        at = max(digits) if example.checker == "number" else rng.choice(digits)
        changed = example.answer[:at] + ("q" if example.answer[at] != "q" else "j") + example.answer[at + 1:]
        assert not is_right(changed, example.checker, example.expected), changed
