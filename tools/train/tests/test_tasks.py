"""The generators: seeded, with held-out prompts that are never trained on, and answers that are true."""
import random
import re

import pytest
import tasks
from tasks.base import Templates, expand
from words import PLAIN_WORDS


def trained_on(name, count, seed=3):
    rng = random.Random(seed)
    return [tasks.make(name, rng, "train") for _ in range(count)]


def test_a_pattern_expands_to_all_its_alternatives():
    assert expand("[a|b] {x}[.|]") == ["a {x}.", "a {x}", "b {x}.", "b {x}"]


def test_the_plainest_templates_are_never_held_out():
    assert "Hello" in tasks.about.TOPICS[-3][1].train
    assert "{a} + {b}" in tasks.arithmetic.ADD.train
    with pytest.raises(AssertionError, match="no pattern"):
        Templates("[a|b] {x}", always=("c {x}",))


def test_templates_are_split_without_overlap():
    for module in tasks.MODULES:
        for templates in [value for value in vars(module).values() if isinstance(value, Templates)]:
            assert templates.train and templates.held_out
            assert not set(templates.train) & set(templates.held_out)


@pytest.mark.parametrize("name", tasks.TASKS)
def test_the_same_seed_gives_the_same_examples(name):
    assert trained_on(name, 5) == trained_on(name, 5)
    assert tasks.held_out(name, 5) == tasks.held_out(name, 5)
    assert tasks.held_out(name, 5) != tasks.held_out(name, 5, seed=2)


@pytest.mark.parametrize("name", [name for name in tasks.TASKS if name not in ("look_up_1500", "look_up_3000")])
def test_no_held_out_prompt_is_ever_trained_on(name):
    trained = {example.messages[-1]["content"] for example in trained_on(name, 3000)}
    # A few short questions of a conversation's last turn are short enough to be met by chance; whole conversations are not.
    if name == "turns":
        trained = {str(example.messages) for example in trained_on(name, 3000)}
        assert not trained & {str(example.messages) for example in tasks.held_out(name, 300)}
    else:
        assert not trained & {example.messages[-1]["content"] for example in tasks.held_out(name, 300)}


def test_drills_keep_off_the_held_out_sums():
    drilled = {example.messages[-1]["content"] for name in tasks.DRILLS if name.startswith("sum") for example in trained_on(name, 5000)}
    held_out = [example for name in ("add_2", "subtract_2") for example in tasks.held_out(name, 500)]

    def sums(texts):
        return {(sign, *sorted((int(a), int(b)))) for a, sign, b in (text.split()[:3] for text in texts)}

    assert not sums(example.answer for example in held_out) & sums(drilled)


@pytest.mark.parametrize("name", ["add_2", "add_3", "subtract_2", "subtract_3"])
def test_sums_are_true_and_their_operands_are_in_the_prompt(name):
    for example in trained_on(name, 300):
        left, result = example.answer.split(" = ")
        a, sign, b = left.split()
        assert int(result) == (int(a) + int(b) if sign == "+" else int(a) - int(b))
        assert {a, b} <= set(re.findall(r"\d+", example.messages[-1]["content"]))
        assert max(len(a), len(b)) <= int(name[-1])


def test_sorted_lists_hold_the_prompts_numbers():
    for example in trained_on("sort_8", 300):
        asked = [int(text) for text in re.findall(r"\d+", example.messages[-1]["content"])]
        answer = [int(text) for text in example.answer.split(", ")]
        assert len(asked) <= 8
        if len(answer) > 1:
            assert answer in (sorted(asked), sorted(asked, reverse=True))
        else:
            assert answer[0] in (min(asked), max(asked))


def test_a_word_is_spelled_and_counted_as_it_stands():
    for example in trained_on("spell", 200):
        asked = example.messages[-1]["content"]
        words = re.findall(r'"(\w+)"', asked) or [word for word in re.findall(r"\w+", asked) if word in PLAIN_WORDS]
        assert example.answer in [text for word in words for text in (word[::-1], "-".join(word))]
    for example in trained_on("count_letters", 200):
        quoted = re.findall(r'"(\w+)"', example.messages[-1]["content"])
        if not quoted:
            quoted = re.search(r"letters? (\w) .*?(\w+)[.?]?$", example.messages[-1]["content"]).groups()
        assert int(example.answer) == (len(quoted[0]) if len(quoted) == 1 else quoted[1].count(quoted[0]))


@pytest.mark.parametrize("name,longest", [("look_up_100", 140), ("look_up_500", 500), ("look_up_3000", 3000)])
def test_a_look_up_has_its_answer_once_and_keeps_to_its_length(name, longest):
    places = []
    for example in tasks.held_out(name, 20):
        text = example.messages[-1]["content"]
        _, attribute, key, value = re.fullmatch(r"The (\w+) of ([\w ]+) is (\w+)\.", example.answer).group(0, 1, 2, 3)
        facts = re.findall(rf"(?<!\w){key}(?: is|:| =| \|) {value}(?!\w)", text)
        assert len(facts) == 1, example.answer
        assert attribute in text and tasks.base.count_pieces(text) <= longest
        places.append(text.index(facts[0]) / len(text))
    assert min(places) < 0.3 and max(places) > 0.7


def test_every_task_of_several_turns_ends_with_a_question():
    for example in trained_on("turns", 100):
        assert example.messages[-1]["role"] == "user"
        assert sum(message["role"] == "assistant" for message in example.messages) >= 1
