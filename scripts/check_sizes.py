#!/usr/bin/env python3
"""Keeps files and functions short: files at most 500 lines (700 in a kernels folder), functions at most 80 (150).

A function is found without a compiler: with comments and strings blanked, an outermost `{` (namespaces, classes and extern "C"
looked through) whose head has a parameter list opens one, and its length is head to closing brace. A TEST is a function too.
What may be longer stands in EXCEPTIONS below with its reason; an exception that is no longer needed is an error.

Usage: scripts/check_sizes.py [FOLDER]...   (default: src apps bench tests)   exit code 0 clean, 1 errors found
"""
import pathlib
import re
import sys

FILE_LINES, FILE_LINES_KERNELS = 500, 700
FUNCTION_LINES, FUNCTION_LINES_KERNELS = 80, 150
SUFFIXES = {".h", ".cc", ".cu", ".cuh", ".inc", ".py", ".sh"}

# "path" or "path:function" -> why it may be longer.
EXCEPTIONS = {}

TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"([^()\s\\]{0,16})\(.*?\)\1"|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)+\'', re.DOTALL)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
MACRO_LINE = re.compile(r"^[ \t]*[A-Z][A-Z0-9_]+\([^(){}]*\);?[ \t]*$", re.MULTILINE)  # alone on its line: not a function
SCOPE = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b")
NAME = re.compile(r"([A-Za-z_~][\w:~<>]*|operator\s*\S+)\s*\(")


def blank(match):
    """Same number of lines, no braces. A digit separator (1'000) is left alone by the caller."""
    return "\n" * match.group(0).count("\n")


def functions(text):
    """Yields (name, first line, lines) of each function body."""
    text = re.sub(r"(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])", "", text)
    text = DIRECTIVE.sub(blank, TOKEN.sub(blank, text))
    text = MACRO_LINE.sub(blank, text)
    scopes = []  # True: a function's body or anything inside one
    head_start, line, head_line = 0, 1, 1
    open_function = None
    for index, char in enumerate(text):
        if char == "\n":
            line += 1
        if char == "{":
            head = text[head_start:index]
            inside = bool(scopes) and scopes[-1]
            stripped = re.sub(r"template\s*<[^{;]*?>\s*(?=\w)", "", head)
            before_parameters = stripped.split("(", 1)[0]
            is_scope = bool(SCOPE.search(before_parameters)) and not re.search(r"\)\s*(const|noexcept|override|->.*)*\s*$", head)
            name = NAME.search(stripped)
            starts = not inside and not is_scope and name is not None
            if starts:
                lead = len(head) - len(head.lstrip())
                open_function = (name.group(1), head_line + head[:lead].count("\n"), len(scopes))
            scopes.append(inside or starts)
            head_start, head_line = index + 1, line
        elif char == "}":
            if scopes:
                scopes.pop()
            if open_function is not None and len(scopes) == open_function[2]:
                yield open_function[0], open_function[1], line - open_function[1] + 1
                open_function = None
            head_start, head_line = index + 1, line
        elif char == ";" and not (scopes and scopes[-1]):
            head_start, head_line = index + 1, line


def python_functions(text):
    import ast

    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno, node.end_lineno - node.lineno + 1


def main(argv):
    root = pathlib.Path(__file__).resolve().parent.parent
    folders = [pathlib.Path(name).resolve() for name in argv[1:]] or [root / n for n in ("src", "apps", "bench", "tests", "scripts", "tools")]
    errors, used, files = [], set(), 0

    def judge(key, where, lines, limit, what):
        if lines <= limit:
            return
        if key in EXCEPTIONS:
            used.add(key)
            print(f"{where}: {what} {lines} lines, allowed: {EXCEPTIONS[key]}")
        else:
            errors.append(f"{where}: {what} {lines} lines, limit {limit}; split it by what each part is for")

    paths = sorted(p for folder in folders if folder.exists() for p in folder.rglob("*") if p.is_file() and p.suffix in SUFFIXES)
    for path in paths:
        files += 1
        name = str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
        kernels = "kernels" in path.parts
        text = path.read_text(encoding="utf-8", errors="replace")
        judge(name, name, text.count("\n"), FILE_LINES_KERNELS if kernels else FILE_LINES, "file has")
        if path.suffix == ".sh":
            continue
        for function, first, lines in python_functions(text) if path.suffix == ".py" else functions(text):
            judge(f"{name}:{function}", f"{name}:{first}", lines, FUNCTION_LINES_KERNELS if kernels else FUNCTION_LINES,
                  f"function {function} has")
    if not argv[1:]:
        errors += [f"scripts/check_sizes.py: the exception '{key}' is no longer needed; remove it" for key in EXCEPTIONS if key not in used]
    for error in errors:
        print(error, file=sys.stderr)
    print(f"sizes: {files} files, {len(EXCEPTIONS)} exceptions, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
