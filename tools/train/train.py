#!/usr/bin/env python3
"""Trains Tandem-Tiny from nothing, in stages that can be stopped and taken up again. Run it until it says `finished`.
SIGTERM or Ctrl-C stops it after the running step, with everything saved.

Usage: tools/train/train.py FOLDER [--recipe 1m|full] [--scale X | --budget-minutes B] [--minutes M] [--threads N]
                               [--workers N] [--compile] [--export OUT] [--weights FILE --first-stage NAME]
FOLDER gets tokenizer/ (made when missing), state.pt (weights, optimizer, stage and step: a later run continues from it) and log.txt.
The same seed gives the same data on any machine; weights agree to the rounding of its arithmetic. With --budget-minutes the stages
share that time instead of having a number of steps: all of it is used, start and compilation included, on a machine of any speed.
With --weights a new training begins with the weights of another one, at the stage named.
"""
import time

STARTED = time.monotonic()  # before the slow imports, which count against the budget too

import argparse  # noqa: E402
import os  # noqa: E402
import pathlib  # noqa: E402
import signal  # noqa: E402
import sys  # noqa: E402

import data  # noqa: E402
import export  # noqa: E402
import optimizer  # noqa: E402
import packed  # noqa: E402
import tokenizer as tandem_tokenizer  # noqa: E402
import torch  # noqa: E402
from model import Llama  # noqa: E402
from prepare import Preparation  # noqa: E402
from recipe import RECIPES, Recipe, Stage  # noqa: E402

SAVE_SECONDS = 40
LOG_STEPS = 100
COMPILED_STEPS = 20  # between checks whether the compiled functions are ready
COMPILED_SECONDS = 25.0  # of a budget that must be left to make the change worth its time
FRESH_STEPS = 50  # of an optimizer that knows nothing about its weights: the rate warms up
SAVE_RESERVE = 1.0  # seconds of a budget that are kept for the last save


class Budget:
    """A time budget of which every stage gets its share. Without one, stages end after their number of steps."""

    def __init__(self, seconds: float | None, stages: tuple[Stage, ...], spent: float = 0.0, begun: float | None = None) -> None:
        """`spent` by earlier runs; `begun`: what the first run had spent when its first step began."""
        self.seconds, self.stages, self.earlier, self.begun = seconds, stages, spent, begun

    def spent(self) -> float:
        return self.earlier + time.monotonic() - STARTED

    def left(self) -> float:
        return float("inf") if self.seconds is None else self.seconds - self.spent()

    def begin(self) -> None:
        if self.begun is None:
            self.begun = self.spent()

    def progress(self, stage: int, step: int) -> float:
        """The part of a stage that is over: 0 to 1, or more when the stage must end."""
        if self.seconds is None:
            return step / self.stages[stage].steps
        shares = [each.share for each in self.stages]
        second = (self.seconds - SAVE_RESERVE - self.begun) / sum(shares)  # of one unit of share
        return (self.spent() - self.begun - second * sum(shares[:stage])) / (second * shares[stage])


class Training:
    """A model on its way through the stages of a recipe."""

    def __init__(self, folder: pathlib.Path, recipe: Recipe, device: torch.device, compiled: bool, workers: int = 0,
                 budget_seconds: float | None = None, precision: packed.Precision = packed.EXACT) -> None:
        self.folder, self.recipe, self.device = folder, recipe, device
        path = folder / "state.pt"
        state = torch.load(path, map_location="cpu", weights_only=True) if path.exists() else None
        self.stage, self.step = (0, 0) if state is None else (state["stage"], state["step"])
        # The workers of all stages that are left start now: before the GPU does, and so that a new stage finds its first steps made.
        timed = budget_seconds is not None
        self.feeds = [data.Feed(folder / "tokenizer", stage, recipe.seed, self.step if index == 0 else 0, None if timed else stage.steps, workers)
                      for index, stage in enumerate(recipe.stages[self.stage :])]
        torch.manual_seed(recipe.seed)
        self.model = Llama(recipe.shape).to(device)
        self.optimizers = optimizer.make(self.model)
        self.budget = Budget(budget_seconds, recipe.stages)
        self.stopping = False
        if state is not None:
            self.model.load_state_dict(state["model"])
            for each, saved in zip(self.optimizers, state["optimizers"]):
                each.load_state_dict(saved)
            self.budget = Budget(budget_seconds, recipe.stages, state["spent"], state["begun"])
        self.compiled, self.fresh_steps = compiled, 0
        self.preparation = Preparation(self.model, precision, recipe, self.say)

    def start_from(self, weights: pathlib.Path) -> None:
        """Takes the weights of another training, unless this training has begun already."""
        if self.stage == 0 and self.step == 0:
            export.load(self.model, weights)
            self.fresh_steps = FRESH_STEPS

    def stop(self, *_: object) -> None:
        """Ends training after the step that runs; for signal handlers."""
        self.stopping = True

    def save(self) -> None:
        """Written beside and moved, so that an interrupted run leaves the state of before."""
        state = {"model": self.model.state_dict(), "optimizers": [each.state_dict() for each in self.optimizers], "stage": self.stage,
                 "step": self.step, "spent": self.budget.spent(), "begun": self.budget.begun}
        torch.save(state, self.folder / "state.partial")
        (self.folder / "state.partial").replace(self.folder / "state.pt")

    def say(self, text: str) -> None:
        print(text, flush=True)
        with (self.folder / "log.txt").open("a") as log:
            log.write(text + "\n")

    def run_step(self, batches: list[data.Batch], stage: Stage, rate: float) -> torch.Tensor:
        for each in self.optimizers:
            for group in each.param_groups:
                group["lr"] = rate
        losses = []
        for batch in batches:
            losses.append(self.ways[stage.name](batch))
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for each in self.optimizers:
            each.step()
            each.zero_grad(set_to_none=True)
        return torch.stack(losses).sum()

    def run_stage(self, feed: data.Feed, deadline: float) -> bool:
        """Trains to the stage's end, or to the deadline; says whether the end was reached."""
        stage = self.recipe.stages[self.stage]
        saved = started = now = time.monotonic()
        losses, tokens, waited = [], 0, 0.0
        for batches in feed:
            waited += time.monotonic() - now
            rate = stage.rate(self.step, self.budget.progress(self.stage, self.step))
            if self.fresh_steps:
                rate *= 1 - self.fresh_steps / (FRESH_STEPS + 1)
                self.fresh_steps -= 1
            losses.append(self.run_step(batches, stage, rate))
            tokens += sum(len(batch.tokens) for batch in batches)
            self.step += 1
            ended = self.budget.progress(self.stage, self.step) >= 1
            if self.step % LOG_STEPS == 0 or ended:
                mean = float(torch.stack(losses).mean())
                seconds = time.monotonic() - started
                self.say(f"{stage.name} {self.step} loss {mean:.4f} rate {rate:.1e} tokens/s {tokens / seconds:.0f} waited for data "
                         f"{100 * waited / seconds:.0f} % at {self.budget.spent():.0f} s")
                losses, tokens, waited, started = [], 0, 0.0, time.monotonic()
            now = time.monotonic()
            if ended:
                return True
            if self.step % COMPILED_STEPS == 0 and self.budget.left() > COMPILED_SECONDS:
                self.ways = self.preparation.compiled() or self.ways
            if now - saved > SAVE_SECONDS:
                self.save()
                saved = now
            if now > deadline or self.stopping:
                return False
            now = time.monotonic()
        return True

    def run(self, deadline: float) -> None:
        try:
            self.run_stages(deadline)
        finally:
            for feed in self.feeds:
                feed.close()
            self.preparation.close()

    def run_stages(self, deadline: float) -> None:
        on_gpu = self.device.type == "cuda"
        if self.compiled and on_gpu:
            self.preparation.start_compiling(self.recipe.name, self.folder / "compile.txt")
        self.ways = self.preparation.make(compiled=self.compiled and not on_gpu)
        self.budget.begin()
        self.say(f"started after {self.budget.spent():.0f} s")
        for feed in self.feeds:
            finished = self.run_stage(feed, deadline)
            if finished:
                self.stage, self.step = self.stage + 1, 0
            self.save()
            if not finished or ((time.monotonic() > deadline or self.stopping) and self.stage < len(self.recipe.stages)):
                self.say("stopped; run again to continue")
                return
        self.say("finished")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--recipe", choices=RECIPES, default="full")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop and save after this time")
    parser.add_argument("--threads", type=int, default=0, help="threads of PyTorch on a CPU (default: its own choice)")
    parser.add_argument("--workers", type=int, default=1, help="processes that write the examples")
    parser.add_argument("--compile", action="store_true", help="compile the model: on a CPU first, which takes a minute; on a GPU beside the training")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--scale", type=float, default=1.0, help="makes all stages longer or shorter; the same in every run of a training")
    length.add_argument("--budget-minutes", type=float, help="the stages share this time; the same in every run of a training")
    parser.add_argument("--export", type=pathlib.Path, help="model folder to write at the end, and one in float32 beside it: OUT-float32")
    parser.add_argument("--weights", type=pathlib.Path, help="safetensors file to begin with")
    parser.add_argument("--first-stage", help="with --weights; leaves out the stages before it")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    if not (arguments.folder / "tokenizer" / "tokenizer.json").exists():
        tandem_tokenizer.save(tandem_tokenizer.train(), arguments.folder / "tokenizer", context=4096)
    recipe = RECIPES[arguments.recipe].scaled(arguments.scale)
    if arguments.first_stage:
        recipe = recipe.beginning_with(arguments.first_stage)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    budget = None if arguments.budget_minutes is None else 60 * arguments.budget_minutes
    training = Training(arguments.folder, recipe, device, arguments.compile, arguments.workers, budget,
                        packed.GPU if device.type == "cuda" else packed.CPU)
    if arguments.weights:
        training.start_from(arguments.weights)
    signal.signal(signal.SIGTERM, training.stop)
    signal.signal(signal.SIGINT, training.stop)
    training.run(STARTED + 60 * arguments.minutes)
    if arguments.export:
        for dtype, suffix in (("float32", "-float32"), ("bfloat16", "")):
            export.write(training.model, arguments.folder / "tokenizer", arguments.export.with_name(arguments.export.name + suffix), dtype)
    sys.stdout.flush()
    os._exit(0)  # everything is written; nothing that still runs in this process may delay its end


if __name__ == "__main__":
    main()
