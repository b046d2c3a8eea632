#!/usr/bin/env python3
"""Renders random chat templates with Tandem and with jinja2 (as transformers sets it up) and prints what differs.

A template counts as the same when both give the same text or both refuse it.
Usage: compare_templates.py [--expressions] [--seed N] [--count N] [--show N]
       --expressions  only {{ one expression }} each, thirty times as many in the same time       (needs the packages of tests/e2e/requirements.txt)
Exit code: 0 nothing differs, 1 something does.
"""
import argparse
import collections
import random
import re
import resource
import sys
import warnings

from driver import Driver
from jinja_reference import NOW, Reference
from template_maker import Maker

# Python's own words for objects, which name addresses and types that are not part of any prompt.
OBJECTS = re.compile(r"object at 0x|<generator|<class|<function|<built-in|<bound|method|<Macro|<Context|LoopContext|iterator|Markup\(")
# What Tandem refuses on purpose, and slices of constants, which jinja2's optimizer takes for undefined.
REFUSALS = re.compile(r"is not subscriptable|past 128 bits|than a rendering may|is not supported|complex numbers|is too large|nested too deeply|steps than")


def verdict(wanted, given):
    """Nothing where both agree or the difference is meant, else what kind of difference it is."""
    if "crash" in given:
        return "crash"
    if ("error" in wanted) != ("error" in given):
        if "text" in wanted and (OBJECTS.search(wanted["text"]) or REFUSALS.search(given["error"])):
            return None
        return "refused by Tandem alone" if "error" in given else "refused by jinja2 alone"
    if "text" in wanted and wanted["text"] != given["text"] and not OBJECTS.search(wanted["text"] + given["text"]):
        return "different text"
    return None


CONTEXT = "{% set quote = ',' %}{% set ns = namespace(v=0) %}{% macro helper(x, y=2) %}{{ x }}{% endmacro %}"


def around(expression):
    """A template that prints it, once for each message where it reads what a loop sets."""
    if re.search(r"\b(loop|message|i)\b", expression):
        return CONTEXT + "{% for message in messages %}{{ " + expression + " }}{% endfor %}"
    return CONTEXT + "{{ " + expression + " }}"


def compare(driver, seed, count, tell=lambda *_: None, expressions=False):
    """Counts of verdicts over `count` templates; tells of each that differs."""
    warnings.simplefilter("ignore", SyntaxWarning)  # of Python, about what templates do to constants
    reference = Reference()
    found = collections.Counter()
    for number in range(seed, seed + count):
        maker = Maker(random.Random(number))
        variables = maker.variables()
        accept = lambda expression: "text" in (reference.render(around(expression), variables) or {})
        template = around(maker.expression()) if expressions else maker.template(accept)
        wanted = reference.render(template, variables)
        if wanted is None:
            found["took too long"] += 1
            continue
        given = driver.ask({"template": template, "variables": variables, "now": NOW})
        kind = verdict(wanted, given)
        found[kind or ("the same text" if "text" in wanted else "refused")] += 1
        if kind:
            tell(number, kind, template, variables, wanted, given)
    return found


def main():
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))  # Python's integers have no end
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--expressions", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--show", type=int, default=10, help="differences to print in full")
    options = parser.parse_args()
    shown = []

    def tell(number, kind, template, variables, wanted, given):
        shown.append((len(template), number, kind, template, variables, wanted, given))

    with Driver() as driver:
        found = compare(driver, options.seed, options.count, tell, options.expressions)
    for _, number, kind, template, variables, wanted, given in sorted(shown, key=lambda one: one[0])[:options.show]:
        used = {name: value for name, value in variables.items() if re.search(rf"\b{name}\b", template)}
        print(f"--- seed {number}: {kind}\n{template!r}\n  with   {used!r}\n  jinja2 {wanted!r}\n  Tandem {given!r}")
    print(dict(found))
    return 1 if shown else 0


if __name__ == "__main__":
    sys.exit(main())
