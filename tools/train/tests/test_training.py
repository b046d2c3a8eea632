"""The model, its batches and training; left out where PyTorch is not installed."""
import dataclasses
import random

import pytest
import tasks

torch = pytest.importorskip("torch")

import data  # noqa: E402
import export  # noqa: E402
import tokenizer as tandem_tokenizer  # noqa: E402
import train  # noqa: E402
from model import Llama, Shape, greedy  # noqa: E402
from recipe import Recipe, Stage  # noqa: E402

SMALL = Shape(hidden=32, intermediate=48, layers=2, heads=4, kv_heads=2, context=512)
STAGE = Stage("first", 6, {"add_2": 1, "copy": 1}, 1e-3, 1e-4, decay=0.5, step_tokens=512, batch_tokens=256, warm_up=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("training")
    tandem_tokenizer.save(tandem_tokenizer.train(), folder / "tokenizer", context=4096)
    return folder


def test_only_answers_are_learned(folder):
    encoder = data.Encoder(folder / "tokenizer")
    example = tasks.held_out("turns", 1)[0]
    ids, weights = encoder.encode(example)
    said = encoder.tokenizer.decode([int(token) for token, weight in zip(ids, weights) if weight > 0], skip_special_tokens=False)
    spoken = [message["content"] for message in example.messages if message["role"] == "assistant"] + [example.answer]
    assert said == "".join(text + tandem_tokenizer.END for text in spoken)


def test_batches_hold_the_same_whatever_the_workers_and_the_first_step(folder):
    def drawn(first, workers):
        return [[batch.tokens.tolist() for batch in step] for step in data.steps(folder / "tokenizer", STAGE, 1, first, workers)]

    assert drawn(0, 0) == drawn(0, 2)
    assert drawn(0, 0)[2:] == drawn(2, 0)


def test_greedy_with_the_cache_writes_what_the_whole_text_would(folder):
    torch.manual_seed(3)
    model = Llama(SMALL)
    rng = random.Random(3)
    prompts = [[rng.randrange(5, 2048) for _ in range(length)] for length in (1, 9, 30)]
    for prompt, answer in zip(prompts, greedy(model, prompts, 12, end=1)):
        tokens = list(prompt)
        for token in answer:
            assert int(model.logits(model.hidden(torch.tensor([tokens])))[0, -1].argmax()) == token
            tokens.append(token)
    assert greedy(model, prompts[:1], 12, end=1) == greedy(model, prompts, 12, end=1)[:1]


def test_training_that_is_interrupted_ends_with_the_same_weights(folder, tmp_path):
    def run(name, times):
        place = tmp_path / name
        place.mkdir()
        (place / "tokenizer").symlink_to(folder / "tokenizer")
        for _ in range(times - 1):  # stops after one step
            train.Training(place, recipe, torch.device("cpu"), compiled=False).run(deadline=0.0, workers=0)
        training = train.Training(place, recipe, torch.device("cpu"), compiled=False)
        training.run(deadline=float("inf"), workers=0)
        assert training.stage == 2
        return training.model

    recipe = Recipe(SMALL, (STAGE, dataclasses.replace(STAGE, name="second", steps=3)))
    whole, pieces = run("whole", 1), run("pieces", 4)
    for one, other in zip(whole.parameters(), pieces.parameters()):
        assert torch.equal(one, other)


def test_an_exported_folder_is_read_back(folder, tmp_path):
    torch.manual_seed(4)
    model = Llama(SMALL)
    export.write(model, folder / "tokenizer", tmp_path, "float32")
    again = export.read(tmp_path)
    assert again.shape == SMALL
    for one, other in zip(model.parameters(), again.parameters()):
        assert torch.equal(one, other)
