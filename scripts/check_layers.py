#!/usr/bin/env python3
"""Holds the folders of src/ to src/LAYERS.

src/LAYERS has one row per folder, top to bottom: `folder: the folders it may include besides itself`.
Errors: a row that allows a folder standing above it (so a cycle cannot be written down), a row or a folder named twice, an
allowed folder without a row or that no file but a test includes, a folder of src/ without a row, an empty folder, an #include
that the row does not allow, an #include by a relative path, a CUDA header outside a `cuda` folder, and a clock of the machine
that is named outside the folders that may read it (READ_CLOCKS): all others are given a Clock (base/clock.h), so that they also
run in virtual time. Tests (`*_test.cc`, `test_*`) may name clocks and include what lies in tests/.
Inside a folder, its subfolders and the files beside them may not include each other in a cycle either (tests aside). A line
`a/b <-> a/c` excuses a pair that does; one that is no longer needed is an error.

Usage: scripts/check_layers.py [SRC_FOLDER]   exit code 0 clean, 1 errors found, 2 usage
"""
import pathlib
import re
import sys

SUFFIXES = {".h", ".cc", ".cu", ".cuh", ".inc"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
QUOTED_LIBRARIES = {"hwy"}  # Highway re-includes files by name, so its headers are written with quotes
READ_CLOCKS = {"api", "base", "bench", "device"}
MACHINE_CLOCK = re.compile(r"\b(?:\w+_clock::now|std::chrono::\w+_clock|SteadyClock|CLOCK_\w+|std::time|gettimeofday)\b")
CUDA_HEADER = re.compile(r"^(cuda|cublas|cudnn|cufft|curand|cusparse|cutlass|nccl|nvml|nvtx|nvToolsExt|thrust|cub/|cute/)")


def read_layers(path, errors):
    """Returns {folder: set of allowed folders} in the file's order, and {pair of subfolders: line number} of the excused
    pairs; complains about everything else."""
    layers, rows, excused = {}, [], {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        line = line.split("#", 1)[0].strip()
        if not line:
            continue
        if "<->" in line:
            excused[frozenset(name.strip() for name in line.split("<->"))] = number
            continue
        folder, colon, allowed = line.partition(":")
        folder = folder.strip()
        if not colon or not folder:
            errors.append(f"{path}:{number}: expected 'folder: allowed folders', got '{line}'")
            continue
        if folder in layers:
            errors.append(f"{path}:{number}: folder '{folder}' has two rows; merge them")
            continue
        layers[folder] = set(allowed.split())
        rows.append((number, folder, allowed.split()))
    order = {folder: index for index, folder in enumerate(layers)}
    for number, folder, allowed in rows:
        for name in allowed:
            if allowed.count(name) > 1:
                errors.append(f"{path}:{number}: '{folder}' names '{name}' twice")
            if name == folder:
                errors.append(f"{path}:{number}: '{folder}' need not allow itself")
            elif name not in order:
                errors.append(f"{path}:{number}: '{folder}' allows '{name}', which has no row")
            elif order[name] < order[folder]:
                errors.append(f"{path}:{number}: '{folder}' allows '{name}', which stands above it: includes only point down")
    return layers, excused


def is_test(path):
    return path.name.endswith("_test.cc") or path.name.startswith("test_")


def check_file(path, src, layers, used, errors):
    """Adds to `used` the pairs (folder that includes, included folder), subfolders apart, of files that are not tests."""
    folder = path.relative_to(src).parts[0]
    allowed = layers[folder] | {folder}
    text = path.read_text(encoding="utf-8", errors="replace")
    if folder not in READ_CLOCKS and not is_test(path):
        for number, line in enumerate(text.splitlines(), 1):
            if MACHINE_CLOCK.search(line.split("//", 1)[0]):
                errors.append(f"{path}:{number}: '{folder}' reads a clock of the machine; take a Clock (base/clock.h) instead")
    for match in INCLUDE.finditer(text):
        quote, name = match.groups()
        where = f"{path}:{text.count(chr(10), 0, match.start(2)) + 1}"
        if CUDA_HEADER.match(name) and "cuda" not in path.relative_to(src).parts[:-1]:
            errors.append(f"{where}: '{name}' is a CUDA header; only */cuda folders may see CUDA")
        if quote == "<":
            continue
        if name.startswith(".") or "/" not in name:
            errors.append(f'{where}: include "{name}" by its path from src/, such as "{folder}/{pathlib.Path(name).name}"')
            continue
        target = name.split("/", 1)[0]
        if target in QUOTED_LIBRARIES:
            continue
        if is_test(path) and (src.parent / "tests" / name).is_file():
            continue
        if target not in layers:
            errors.append(f'{where}: "{name}" names folder \'{target}\', which has no row in LAYERS')
        elif target not in allowed:
            errors.append(f"{where}: '{folder}' may not include '{target}' (\"{name}\"); its row in LAYERS allows: "
                          f"{' '.join(sorted(allowed - {folder})) or 'nothing'}")
        elif not (src / name).is_file():
            errors.append(f'{where}: "{name}" does not exist under {src}')
        elif not is_test(path):
            used.add((path.relative_to(src).parent.as_posix(), pathlib.PurePath(name).parent.as_posix()))


def check_rows(layers, used, layers_path, errors):
    folders = {(user.split("/", 1)[0], name.split("/", 1)[0]) for user, name in used}
    for folder, allowed in layers.items():
        for name in sorted(allowed):
            if (folder, name) not in folders:
                errors.append(f"{layers_path}: '{folder}' allows '{name}', which no file of it includes; remove it")


def find_cycle(graph):
    """The folders of one cycle of {folder: folders it includes}, the first again at the end; or None."""
    done, path = set(), []

    def visit(folder):
        if folder in path:
            return path[path.index(folder):] + [folder]
        if folder in done:
            return None
        path.append(folder)
        for name in sorted(graph.get(folder, ())):
            cycle = visit(name)
            if cycle:
                return cycle
        path.pop()
        done.add(folder)
        return None

    for folder in sorted(graph):
        cycle = visit(folder)
        if cycle:
            return cycle
    return None


def check_subfolders(used, excused, layers_path, errors):
    inside = {pair for pair in used if pair[0] != pair[1] and pair[0].split("/", 1)[0] == pair[1].split("/", 1)[0]}
    for pair, number in excused.items():
        if len(pair) != 2 or not all((user, name) in inside for user in pair for name in pair if user != name):
            errors.append(f"{layers_path}:{number}: {' and '.join(sorted(pair))} do not include each other (any more); "
                          "remove the line")
    graph = {}
    for user, name in inside:
        if frozenset((user, name)) not in excused:
            graph.setdefault(user, set()).add(name)
    cycle = find_cycle(graph)
    if cycle:
        errors.append(f"subfolders include each other in a cycle: {' -> '.join(cycle)}; move what the lower one needs into a "
                      "folder below both")


def main(argv):
    if len(argv) > 2 or (len(argv) == 2 and argv[1].startswith("-")):
        print(__doc__.strip())
        return 0 if argv[1:] in (["-h"], ["--help"]) else 2
    src = pathlib.Path(argv[1]) if len(argv) == 2 else pathlib.Path(__file__).resolve().parent.parent / "src"
    if not (src / "LAYERS").is_file():
        print(f"check_layers.py: {src}/LAYERS is missing", file=sys.stderr)
        return 1
    if src.is_absolute() and src.is_relative_to(pathlib.Path.cwd()):
        src = src.relative_to(pathlib.Path.cwd())
    errors = []
    layers, excused = read_layers(src / "LAYERS", errors)
    files, used = 0, set()
    for folder in sorted(path for path in src.iterdir() if path.is_dir()):
        inside = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix in SUFFIXES)
        if folder.name not in layers:
            errors.append(f"{folder}: has no row in {src}/LAYERS; add one that says what it may include")
            continue
        if not inside:
            errors.append(f"{folder}: is empty; a folder comes with its first source file")
        for path in inside:
            files += 1
            check_file(path, src, layers, used, errors)
    check_rows(layers, used, src / "LAYERS", errors)
    check_subfolders(used, excused, src / "LAYERS", errors)
    for error in errors:
        print(error, file=sys.stderr)
    print(f"layers: {files} files, {len(layers)} rows, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
