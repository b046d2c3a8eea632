#!/usr/bin/env python3
"""Writes held-out tasks as JSON lines, for programs that ask a server and judge its answers, and reads them.

Usage: tools/train/task_file.py OUT.jsonl [--count N] [--seed S] [--tasks NAME,...]
One line is one task; docs/default-model.md describes the format. The same arguments write the same bytes.
"""
import argparse
import json
import pathlib

import tasks

VERSION = 1


def to_line(example: tasks.Example, identifier: str) -> str:
    fields = {"version": VERSION, "id": identifier, "task": example.task, "messages": example.messages, "checker": example.checker,
              "expected": example.expected, "answer": example.answer}
    return json.dumps(fields, ensure_ascii=False)


def read(path: pathlib.Path) -> list[tasks.Example]:
    """Refuses, with the line's number, what is no task."""
    examples = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        try:
            fields = json.loads(line)
            if fields["version"] != VERSION:
                raise ValueError(f"version {fields['version']}; this program reads {VERSION}")
            if fields["checker"] not in tasks.CHECKERS:
                raise ValueError(f"unknown checker {fields['checker']!r}")
            examples.append(tasks.Example(fields["task"], fields["messages"], fields["answer"], fields["checker"], fields["expected"]))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}:{number}: {error}") from error
    return examples


def write(path: pathlib.Path, names: list[str], count: int, seed: int) -> int:
    lines = [to_line(example, f"{name}-{index}") for name in names for index, example in enumerate(tasks.held_out(name, count, seed))]
    path.write_text("".join(line + "\n" for line in lines))
    return len(lines)


def task_names(text: str | None) -> list[str]:
    """Names given as a comma-separated list; all tasks for None."""
    names = list(tasks.TASKS) if text is None else text.split(",")
    unknown = [name for name in names if name not in tasks.TASKS]
    if unknown:
        raise SystemExit(f"unknown task {unknown[0]!r}; there are: {', '.join(tasks.TASKS)}")
    return names


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=100, help="examples of each task")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tasks", help="names with commas (default: all)")
    arguments = parser.parse_args()
    print(f"{arguments.out}: {write(arguments.out, task_names(arguments.tasks), arguments.count, arguments.seed)} tasks")


if __name__ == "__main__":
    main()
