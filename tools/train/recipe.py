"""The recipes: sizes of the models, and the stages each is trained in."""
import dataclasses

from model import Shape


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
    warm_up: int = 100


@dataclasses.dataclass(frozen=True)
class Recipe:
    shape: Shape
    stages: tuple[Stage, ...]
    seed: int = 1

    def scaled(self, factor: float) -> "Recipe":
        """The same stages with `factor` times as many steps."""
        stages = tuple(dataclasses.replace(stage, steps=max(1, round(stage.steps * factor))) for stage in self.stages)
        return dataclasses.replace(self, stages=stages)


BASICS = {"copy": 22, "look_up_100": 28, "add_2": 22, "subtract_2": 10, "compare": 6, "about": 4, "refuse": 4, "spell": 4}
DRILL = {"sum_drill": 75, "add_2": 5, "subtract_2": 3, "copy": 4, "look_up_100": 5, "look_up_500": 4, "compare": 2, "about": 2}
FINISH = {"sum_drill": 24, "add_2": 11, "subtract_2": 10, "copy": 10, "look_up_100": 9, "look_up_500": 6, "compare": 10, "about": 4, "refuse": 5,
          "spell": 6, "sort_4": 6, "count_letters": 4, "story": 2, "turns_basic": 6}
FULL_BASICS = {"copy": 25, "look_up_100": 30, "add_2": 25, "subtract_2": 12, "compare": 4, "about": 4, "sum_drill": 30}
SHORT = {"sum_drill_3": 12, "copy": 8, "look_up_100": 12, "look_up_500": 3, "add_2": 10, "subtract_2": 10, "add_3": 12,
         "subtract_3": 12, "compare": 8, "sort_4": 6, "sort_8": 10, "count_letters": 8, "spell": 8, "story": 4, "about": 3, "refuse": 5, "turns": 8}
LONG = SHORT | {"look_up_500": 6, "look_up_1500": 3, "look_up_3000": 1.5}

RECIPES = {
    "1m": Recipe(Shape(hidden=128, intermediate=384, layers=4, heads=4, kv_heads=2), (
        Stage("basics", 3500, BASICS, 2e-3, 2e-3, step_tokens=2048, batch_tokens=1024),
        Stage("drill", 1500, DRILL, 2e-3, 2e-3, step_tokens=2048, batch_tokens=1024),
        Stage("finish", 6000, FINISH, 2e-3, 5e-5, decay=0.8, step_tokens=2048, batch_tokens=1024),
    )),
    "full": Recipe(Shape(), (
        Stage("basics", 4000, FULL_BASICS, 2e-3, 2e-3, step_tokens=32768, batch_tokens=8192),
        Stage("short", 16000, SHORT, 2e-3, 1.5e-3, decay=0.5, step_tokens=65536, batch_tokens=16384),
        Stage("long", 12000, LONG, 1.5e-3, 5e-5, decay=0.9, step_tokens=131072, batch_tokens=32768),
    )),
}
