#!/usr/bin/env python3
"""Trains Tandem-Tiny from nothing, in stages that can be stopped and taken up again. Run it until it says `finished`.
SIGTERM or Ctrl-C stops it after the running step, with everything saved.

Usage: tools/train/train.py FOLDER [--recipe 1m|full] [--scale X] [--minutes M] [--threads N]
                               [--workers N] [--compile]
FOLDER gets tokenizer/ (made when missing), state.pt (weights, optimizer, stage and step: what a later run goes on from) and log.txt.
The same seed gives the same data on any machine; weights agree to the rounding of its arithmetic.
"""
import argparse
import contextlib
import pathlib
import signal
import time

import data
import tokenizer as tandem_tokenizer
import torch
import torch.nn.functional as F
from model import Linear, Llama
from recipe import RECIPES, Recipe, Stage

SAVE_SECONDS = 120
LOG_STEPS = 50


def rate(stage: Stage, step: int) -> float:
    """Warm-up, then constant, then a straight line down."""
    if step < stage.warm_up:
        return stage.peak_rate * (step + 1) / stage.warm_up
    left = (stage.steps - step) / max(1.0, stage.decay * stage.steps)
    return stage.final_rate + (stage.peak_rate - stage.final_rate) * min(1.0, left)


def make_optimizer(model: Llama) -> torch.optim.Optimizer:
    matrices = [p for p in model.parameters() if p.dim() == 2]
    norms = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": norms, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, betas=(0.9, 0.98), eps=1e-9, fused=matrices[0].is_cuda)


class Training:
    """A model on its way through the stages of a recipe."""

    def __init__(self, folder: pathlib.Path, recipe: Recipe, device: torch.device, compiled: bool) -> None:
        self.folder, self.recipe, self.device = folder, recipe, device
        torch.manual_seed(recipe.seed)
        self.model = Llama(recipe.shape).to(device)
        self.optimizer = make_optimizer(self.model)
        self.hidden = torch.compile(self.model.hidden, dynamic=True) if compiled else self.model.hidden
        self.stopping = False
        self.stage, self.step = 0, 0
        if (folder / "state.pt").exists():
            state = torch.load(folder / "state.pt", map_location=device, weights_only=True)
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.stage, self.step = state["stage"], state["step"]

    def stop(self, *_: object) -> None:
        """Ends training after the step that runs; for signal handlers."""
        self.stopping = True

    def save(self) -> None:
        """Written beside and moved, so that an interrupted run leaves the state of before."""
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "stage": self.stage, "step": self.step}
        torch.save(state, self.folder / "state.partial")
        (self.folder / "state.partial").replace(self.folder / "state.pt")

    def say(self, text: str) -> None:
        print(text, flush=True)
        with (self.folder / "log.txt").open("a") as log:
            log.write(text + "\n")

    def loss(self, batch: data.Batch, norm: float) -> torch.Tensor:
        """The weighted loss over the answers' tokens, as a part of the step's."""
        tokens, weights = data.to_device(batch, self.device)
        with torch.autocast(self.device.type, dtype=torch.bfloat16) if self.device.type == "cuda" else contextlib.nullcontext():
            states = self.hidden(tokens[:, :-1])
            chosen = weights[:, 1:] > 0
            logits = self.model.logits(states[chosen])
        losses = F.cross_entropy(logits.float(), tokens[:, 1:][chosen], reduction="none")
        return (losses * weights[:, 1:][chosen]).sum() / norm

    def run_step(self, batches: list[data.Batch], stage: Stage) -> torch.Tensor:
        for group in self.optimizer.param_groups:
            group["lr"] = rate(stage, self.step)
        norm = float(sum(batch.weights.sum() for batch in batches))
        total = torch.zeros((), device=self.device)
        for batch in batches:
            loss = self.loss(batch, norm)
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return total

    def run_stage(self, stage: Stage, deadline: float, workers: int) -> bool:
        """Trains to the stage's end, or to the deadline; says whether the end was reached."""
        saved = started = time.monotonic()
        losses, tokens = [], 0
        for batches in data.steps(self.folder / "tokenizer", stage, self.recipe.seed, self.step, workers):
            losses.append(self.run_step(batches, stage))
            tokens += sum(batch.tokens.size for batch in batches)
            self.step += 1
            now = time.monotonic()
            if self.step % LOG_STEPS == 0:
                mean = float(torch.stack(losses).mean())
                self.say(f"{stage.name} {self.step}/{stage.steps} loss {mean:.4f} tokens/s {tokens / (now - started):.0f}")
                losses, tokens, started = [], 0, now
            if now - saved > SAVE_SECONDS:
                self.save()
                saved = now
            if now > deadline or self.stopping:
                return self.step >= stage.steps
        return True

    def run(self, deadline: float, workers: int) -> None:
        while self.stage < len(self.recipe.stages):
            finished = self.run_stage(self.recipe.stages[self.stage], deadline, workers)
            if finished:
                self.stage, self.step = self.stage + 1, 0
            self.save()
            if not finished or ((time.monotonic() > deadline or self.stopping) and self.stage < len(self.recipe.stages)):
                self.say("stopped; run again to go on")
                return
        self.say("finished")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--recipe", choices=RECIPES, default="full")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop and save after so long")
    parser.add_argument("--threads", type=int, default=0, help="threads of PyTorch on a CPU (default: its own choice)")
    parser.add_argument("--workers", type=int, default=1, help="processes that write the examples")
    parser.add_argument("--compile", action="store_true", help="compile the model first: a minute or two, then about half as fast again")
    parser.add_argument("--scale", type=float, default=1.0, help="makes all stages longer or shorter; the same in every run of a training")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    if not (arguments.folder / "tokenizer" / "tokenizer.json").exists():
        tandem_tokenizer.save(tandem_tokenizer.train(), arguments.folder / "tokenizer", context=4096)
    recipe = RECIPES[arguments.recipe].scaled(arguments.scale)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    Linear.in_bfloat16 = device.type == "cpu"
    training = Training(arguments.folder, recipe, device, arguments.compile)
    signal.signal(signal.SIGTERM, training.stop)
    signal.signal(signal.SIGINT, training.stop)
    training.run(time.monotonic() + 60 * arguments.minutes, arguments.workers)


if __name__ == "__main__":
    main()
