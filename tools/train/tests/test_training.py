"""The model, its batches and training; left out where PyTorch is not installed."""
import dataclasses
import random

import numpy as np
import pytest
import tasks

torch = pytest.importorskip("torch")

import data  # noqa: E402
import export  # noqa: E402
import optimizer  # noqa: E402
import packed  # noqa: E402
import tokenizer as tandem_tokenizer  # noqa: E402
import train  # noqa: E402
from model import Llama, Shape, greedy  # noqa: E402
from recipe import RECIPES, Limits, Recipe, Stage  # noqa: E402

SMALL = Shape(hidden=32, intermediate=48, layers=2, heads=4, kv_heads=2, context=512)
STAGE = Stage("first", 6, {"add_2": 1, "copy": 1}, 1e-3, 1e-4, decay=0.5, step_tokens=512, batch_tokens=256, warm_up=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("training")
    tandem_tokenizer.save(tandem_tokenizer.train(), folder / "tokenizer", context=4096)
    return folder


def one_row(folder, examples, tokens, limits=None):
    encoder = data.Encoder(folder / "tokenizer")
    return encoder, data.to_batches([[encoder.conversation(example) for example in examples]], tokens, limits)[0]


@pytest.mark.parametrize("name", [*tasks.TASKS, *tasks.DRILLS])
def test_the_fast_encoder_writes_what_the_tokenizer_writes(folder, name):
    encoder = data.Encoder(folder / "tokenizer")
    rng = random.Random(5)
    for example in [tasks.make(name, rng, "train") for _ in range(10)]:
        text = tandem_tokenizer.render(example.messages, example.answer)
        assert encoder.conversation(example)[0] == encoder.tokenizer.encode(text).ids
        assert encoder.prompt(example) == encoder.tokenizer.encode(tandem_tokenizer.render(example.messages)).ids
    for text in ("a_b  c\t\n\x1c\x0b", "x<|end|>y", "Größe 日本", " -5 + 'tis?!"):
        assert encoder.text(text) == encoder.tokenizer.encode(text).ids


def test_only_answers_are_learned(folder):
    example = tasks.held_out("turns", 1)[0]
    encoder, batch = one_row(folder, [example], 500)
    said = encoder.tokenizer.decode(batch.targets.tolist(), skip_special_tokens=False)
    spoken = [message["content"] for message in example.messages if message["role"] == "assistant"] + [example.answer]
    assert said == "".join(text + tandem_tokenizer.END for text in spoken)
    assert batch.targets.tolist() == batch.tokens[batch.chosen + 1].tolist()


def test_steps_hold_the_same_whatever_the_workers_and_the_first_step(folder):
    def drawn(first, workers, last=STAGE.steps):
        feed = data.Feed(folder / "tokenizer", STAGE, 1, first, last, workers)
        steps = [[batch.tokens.tolist() for batch in step] for step, _ in zip(feed, range(last or 4))]
        feed.close()
        return steps

    assert len(drawn(0, 0)) == STAGE.steps
    assert drawn(0, 0) == drawn(0, 2)
    assert drawn(0, 0)[2:] == drawn(2, 0)
    assert drawn(0, 1, last=None) == drawn(0, 0)[:4]


def test_rows_are_nearly_full_and_every_step_weighs_one(folder):
    for step in data.Feed(folder / "tokenizer", STAGE, 1, 0, 4, 0):
        assert len(step) == 2
        assert sum(batch.weights.sum() for batch in step) == pytest.approx(1, abs=1e-5)
        for batch in step:
            assert len(batch.tokens) == 256 and batch.starts[-1] == 256
            assert (batch.tokens == 0).sum() < 60


@pytest.mark.parametrize("limits", [None, Limits(conversations=12, learned=150, length=300)])
def test_a_packed_conversation_has_the_loss_and_gradients_it_has_alone(folder, limits):
    torch.manual_seed(2)
    model = Llama(SMALL)
    examples = [*tasks.held_out("look_up_100", 2), *tasks.held_out("add_2", 3), *tasks.held_out("copy", 2)]
    encoder, batch = one_row(folder, examples, 480, limits)
    compute = packed.Gradients(packed.PackedLoss(model, packed.EXACT, packed.grouped, compiled=False))
    loss = compute(batch)
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    total, weight = torch.zeros(()), 0.0
    for ids, answers in map(encoder.conversation, examples):
        losses = torch.nn.functional.cross_entropy(model.logits(model.hidden(torch.tensor([ids])))[0, :-1], torch.tensor(ids[1:]), reduction="none")
        for first, end in answers:
            total = total + losses[first - 1 : end - 1].sum() * (end - first) ** -0.5
            weight += (end - first) ** 0.5
    (total / weight).backward()
    assert float(loss) == pytest.approx(float(total.detach()) / weight, rel=1e-5)
    for parameter, gradient in zip(model.parameters(), gradients):
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("stage", RECIPES["full"].stages, ids=lambda stage: stage.name)
def test_the_limits_of_the_full_recipe_leave_next_to_nothing_out(folder, stage):
    for step in data.make_chunk(data.Encoder(folder / "tokenizer"), stage, 7, 0):
        batch = step[0]
        assert (len(batch.tokens), len(batch.starts) - 1) == (stage.batch_tokens, stage.limits.conversations)
        assert len(batch.chosen) == len(batch.targets) == len(batch.weights) == stage.limits.learned
        assert (batch.tokens == 0).sum() < 0.01 * stage.batch_tokens
        assert (batch.weights > 0).sum() < stage.limits.learned and np.diff(batch.starts).max() <= stage.limits.length


def test_lengths_are_grouped_by_similarity():
    assert packed.similar(np.array([90, 80, 60, 59, 30, 29, 100])) == [(0, 3), (3, 4), (4, 6), (6, 7)]


def test_muon_takes_orthogonal_steps_of_the_size_of_adamw():
    torch.manual_seed(6)
    for rows, columns in ((8, 32), (32, 8)):
        singular = torch.linalg.svdvals(optimizer.orthogonalize(torch.randn(3, rows, columns)))
        assert 0.5 < float(singular.min()) and float(singular.max()) < 1.5
        matrix = torch.nn.Parameter(torch.zeros(rows, columns))
        matrix.grad = torch.randn(rows, columns)
        muon = optimizer.Muon([matrix])
        muon.param_groups[0]["lr"] = 1.0
        muon.step()
        assert 0.1 < float(matrix.detach().square().mean().sqrt()) < 0.3


def test_the_rate_warms_up_stays_and_falls():
    stage = Stage("one", 100, {}, 1.0, 0.1, decay=0.5, warm_up=4)
    assert [stage.rate(step, 0.0) for step in (0, 3, 4)] == [0.25, 1.0, 1.0]
    assert [round(stage.rate(50, progress), 3) for progress in (0.5, 0.75, 1.0, 1.1)] == [1.0, 0.55, 0.1, 0.1]


def test_a_budget_is_shared_among_the_stages_and_goes_on_where_it_stopped(monkeypatch):
    now = [train.STARTED + 20.0]
    monkeypatch.setattr(train.time, "monotonic", lambda: now[0])
    stages = (dataclasses.replace(STAGE, share=0.25), dataclasses.replace(STAGE, share=0.75))
    budget = train.Budget(121.0, stages)
    budget.begin()
    assert budget.progress(0, 0) == 0
    now[0] += 25
    assert budget.progress(0, 0) == pytest.approx(1) and budget.progress(1, 0) == pytest.approx(0)
    again = train.Budget(121.0, stages, spent=budget.spent() - 20 + 37.5, begun=budget.begun)
    now[0] = train.STARTED + 20
    again.begin()
    assert again.progress(1, 0) == pytest.approx(0.5 + 0 / 75)


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
            train.Training(place, recipe, torch.device("cpu"), compiled=False).run(deadline=0.0)
        training = train.Training(place, recipe, torch.device("cpu"), compiled=False)
        training.run(deadline=float("inf"))
        assert training.stage == 2
        return training.model

    recipe = Recipe("small", SMALL, (STAGE, dataclasses.replace(STAGE, name="second", steps=3)))
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
