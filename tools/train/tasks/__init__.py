"""The abilities of Tandem-Tiny: one module each, with a seeded generator and an exact checker."""
import random
import zlib

from tasks import about, arithmetic, copying, letters, lists, lookup, refusal, spelling, story, turns
from tasks.base import Example, Split, Task
from tasks.checkers import CHECKERS, is_right

MODULES = (arithmetic, lists, letters, spelling, copying, lookup, story, about, refusal, turns)
TASKS: dict[str, Task] = {task.name: task for module in MODULES for task in module.TASKS}
DRILLS: dict[str, Task] = {task.name: task for module in (arithmetic, lookup) for task in module.DRILLS}  # trained on, not evaluated
SYSTEM = ("You are a helpful assistant.", "You are Tandem-Tiny.", "Answer briefly.", "You are a friendly assistant that answers briefly.")
SYSTEM_SHARE = 0.1
# Tasks whose prompt does not begin with something that must be read exactly; people often begin in lower case.
CASELESS = ("add_2", "add_3", "subtract_2", "subtract_3", "compare", "sort_4", "sort_8", "count_letters", "spell", "about", "refuse")
LOWER_CASE_SHARE = 0.15


def make(name: str, rng: random.Random, split: Split) -> Example:
    """An example of the task; one in ten begins with a system message, which changes nothing, and some prompts in lower case."""
    if name in DRILLS:
        return DRILLS[name].make(rng, split)
    example = TASKS[name].make(rng, split)
    if name in CASELESS and rng.random() < LOWER_CASE_SHARE:
        asked = example.messages[-1]["content"]
        example.messages[-1]["content"] = asked[:1].lower() + asked[1:]
    if rng.random() < SYSTEM_SHARE:
        example.messages.insert(0, {"role": "system", "content": rng.choice(SYSTEM)})
    return example


def held_out(name: str, count: int, seed: int = 1) -> list[Example]:
    """The held-out examples of a task: the same for the same seed, and none of them ever trained on."""
    rng = random.Random(f"held out {zlib.crc32(name.encode())} {seed}")
    return [make(name, rng, "held_out") for _ in range(count)]


__all__ = ["CHECKERS", "DRILLS", "Example", "MODULES", "Split", "TASKS", "Task", "held_out", "is_right", "make"]
