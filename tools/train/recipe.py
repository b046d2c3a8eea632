"""The recipes: sizes of the models, and the stages each is trained in."""
import dataclasses

from model import Shape


@dataclasses.dataclass(frozen=True)
class Limits:
    """Fixed sizes of a batch, so that a GPU can replay a recorded step. A conversation beyond them is left out, which is rare."""

    conversations: int
    learned: int  # tokens of answers
    length: int  # of a conversation, in tokens


@dataclasses.dataclass(frozen=True)
class Stage:
    """Some steps on one mixture of tasks. `mixture`: shares of the examples (not of the tokens)."""

    name: str
    steps: int
    mixture: dict[str, float]
    peak_rate: float
    final_rate: float  # the rate falls to it in a straight line over the last `decay` part of the stage
    decay: float = 0.0
    step_tokens: int = 8192
    batch_tokens: int = 4096  # what is computed at once; the gradient is summed over a step
    warm_up: int = 100  # steps
    share: float = 0.0  # of the time, in a run with a time budget instead of a number of steps
    limits: Limits | None = None

    def rate(self, step: int, progress: float) -> float:
        """Warm-up, then constant, then a straight line down. `progress`: the part of the stage that is over, 0 to 1."""
        if step < self.warm_up:
            return self.peak_rate * (step + 1) / self.warm_up
        left = (1.0 - progress) / self.decay if self.decay else 1.0
        return self.final_rate + (self.peak_rate - self.final_rate) * max(0.0, min(1.0, left))


@dataclasses.dataclass(frozen=True)
class Recipe:
    name: str
    shape: Shape
    stages: tuple[Stage, ...]
    seed: int = 1

    def beginning_with(self, name: str) -> "Recipe":
        """Without the stages before the stage `name`."""
        names = [stage.name for stage in self.stages]
        if name not in names:
            raise SystemExit(f"unknown stage {name!r}; the stages of {self.name} are: {', '.join(names)}")
        return dataclasses.replace(self, stages=self.stages[names.index(name) :])

    def scaled(self, factor: float) -> "Recipe":
        """The same stages with `factor` times as many steps."""
        stages = tuple(dataclasses.replace(stage, steps=max(1, round(stage.steps * factor))) for stage in self.stages)
        return dataclasses.replace(self, stages=stages)


BASICS = {"copy": 22, "look_up_100": 28, "add_2": 22, "subtract_2": 10, "compare": 6, "about": 4, "refuse": 4, "spell": 4}
DRILL = {"sum_drill": 75, "add_2": 5, "subtract_2": 3, "copy": 4, "look_up_100": 5, "look_up_500": 4, "compare": 2, "about": 2}
FINISH = {"sum_drill": 24, "add_2": 11, "subtract_2": 10, "copy": 10, "look_up_100": 9, "look_up_500": 6, "compare": 10, "about": 4, "refuse": 5,
          "spell": 6, "sort_4": 6, "count_letters": 4, "story": 2, "turns_basic": 6}
FULL_BASICS = {"copy": 20, "look_up_100": 25, "look_up_drill_500": 3, "add_2": 15, "subtract_2": 10, "sum_drill": 30, "compare": 5, "sort_4": 6,
               "spell": 6, "count_letters": 5, "about": 3, "refuse": 2, "story": 2}
SHORT = {"sum_drill_3": 14, "copy": 7, "look_up_100": 8, "look_up_500": 1.5, "look_up_drill_500": 3, "add_2": 7, "subtract_2": 7, "add_3": 12,
         "subtract_3": 12, "compare": 8, "sort_4": 6, "sort_8": 12, "count_letters": 12, "spell": 10, "story": 5, "about": 3, "refuse": 5, "turns": 8}
LONG = SHORT | {"look_up_500": 3, "look_up_drill_500": 3, "look_up_1500": 1, "look_up_drill_1500": 1, "look_up_3000": 0.7, "look_up_drill_3000": 0.7}


def row(tokens: int, length: int) -> dict[str, object]:
    """One batch of `tokens` tokens a step. Conversations have 45 to 90 tokens on average; 16 to 29 % of the tokens are answers."""
    limits = Limits(conversations=tokens // 36, learned=tokens * 5 // 16, length=length)
    return {"step_tokens": tokens, "batch_tokens": tokens, "limits": limits}


RECIPES = {
    "1m": Recipe("1m", Shape(hidden=128, intermediate=384, layers=4, heads=4, kv_heads=2), (
        Stage("basics", 3500, BASICS, 4e-3, 4e-3, step_tokens=2048, batch_tokens=1024, share=0.35),
        Stage("drill", 1500, DRILL, 4e-3, 4e-3, step_tokens=2048, batch_tokens=1024, share=0.15),
        Stage("finish", 6000, FINISH, 4e-3, 5e-5, decay=0.8, step_tokens=2048, batch_tokens=1024, share=0.5),
    )),
    "full": Recipe("full", Shape(), (
        Stage("basics", 4000, FULL_BASICS, 5e-3, 5e-3, share=0.12, **row(32768, 1024)),
        Stage("short", 16000, SHORT, 5e-3, 4e-3, decay=0.5, warm_up=0, share=0.46, **row(32768, 1024)),
        Stage("long", 14000, LONG, 4e-3, 1e-5, decay=1.0, warm_up=0, share=0.42, **row(32768, 3328)),
    )),
}
