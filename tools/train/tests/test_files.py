"""The tokenizer, the chat template and the task file."""
import json

import jinja2
import pytest
import task_file
import tasks
import tokenizer as tandem_tokenizer
import words


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    tandem_tokenizer.save(tandem_tokenizer.train(), folder, context=4096)
    return folder


@pytest.fixture(scope="module")
def trained(folder):
    return tandem_tokenizer.load(folder)


def test_digits_and_the_letters_of_a_quoted_word_are_single_tokens(trained):
    assert trained.encode(" 4512 + 7").tokens == ["Ġ", "4", "5", "1", "2", "Ġ+", "Ġ", "7"]
    assert trained.encode(' "river"').tokens == ['Ġ"', "r", "i", "v", "e", "r", '"']
    assert trained.encode("stressed").tokens == list("stressed")


def test_every_listed_word_is_one_token_after_a_space(trained):
    assert trained.get_vocab_size() == tandem_tokenizer.VOCABULARY
    listed = {word for group in vars(words).values() if isinstance(group, tuple) for word in group}
    assert [word for word in sorted(listed) if len(trained.encode(" " + word).ids) != 1] == []


def test_any_text_comes_back(trained):
    for text in ("", " ", "a  b\n\n c\t", "Größe, 日本語 🙂", "x" * 50, "<|nothing|> 1,000.50", "\u0301\u200d"):
        assert trained.decode(trained.encode(text).ids, skip_special_tokens=False) == text


def test_the_chat_template_writes_what_training_wrote(folder):
    config = json.loads((folder / "tokenizer_config.json").read_text())
    template = jinja2.Environment().from_string(config["chat_template"])
    for example in tasks.held_out("turns", 20):
        prompt = template.render(messages=example.messages, add_generation_prompt=True)
        assert prompt == tandem_tokenizer.render(example.messages)
        full = [*example.messages, {"role": "assistant", "content": example.answer}]
        assert template.render(messages=full, add_generation_prompt=False) == tandem_tokenizer.render(example.messages, example.answer)


def test_a_task_file_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "tasks.jsonl"
    assert task_file.write(path, ["add_2", "story"], 5, seed=1) == 10
    assert task_file.read(path) == tasks.held_out("add_2", 5) + tasks.held_out("story", 5)
    before = path.read_bytes()
    task_file.write(path, ["add_2", "story"], 5, seed=1)
    assert path.read_bytes() == before


@pytest.mark.parametrize("line,reason", [("{", "2"), ('{"version": 9}', "version 9"), ('{"version": 1}', "checker"),
                                         ('{"version": 1, "checker": "guess"}', "guess"), ("[]", "2")])
def test_a_broken_task_file_is_refused_with_its_line(tmp_path, line, reason):
    path = tmp_path / "tasks.jsonl"
    task_file.write(path, ["add_2"], 1, seed=1)
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(ValueError, match=rf"tasks\.jsonl:2: .*{reason}|tasks\.jsonl:{reason}:"):
        task_file.read(path)


def test_an_unknown_task_is_named():
    with pytest.raises(SystemExit, match="multiply"):
        task_file.task_names("add_2,multiply")
