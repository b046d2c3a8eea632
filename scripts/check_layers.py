#!/usr/bin/env python3
"""Holds the folders of src/ to src/LAYERS.

src/LAYERS has one row per folder, top to bottom: `folder: the folders it may include besides itself`.
Errors: a row that allows a folder standing above it (so a cycle cannot be written down), a row or a folder named twice, an
allowed folder without a row, a folder of src/ without a row, an empty folder, an #include that the row does not allow, an
#include by a relative path, and a CUDA header outside a `cuda` folder. Tests (`*_test.cc`) may also include what lies in tests/.

Usage: scripts/check_layers.py [SRC_FOLDER]   exit code 0 clean, 1 errors found, 2 usage
"""
import pathlib
import re
import sys

SUFFIXES = {".h", ".cc", ".cu", ".cuh", ".inc"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
QUOTED_LIBRARIES = {"hwy"}  # Highway re-includes files by name, so its headers are written with quotes
CUDA_HEADER = re.compile(r"^(cuda|cublas|cudnn|cufft|curand|cusparse|cutlass|nccl|nvml|nvtx|nvToolsExt|thrust|cub/|cute/)")


def read_layers(path, errors):
    """Returns {folder: set of allowed folders} in the file's order; complains about everything else."""
    layers, rows = {}, []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        line = line.split("#", 1)[0].strip()
        if not line:
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
    return layers


def check_file(path, src, layers, errors):
    folder = path.relative_to(src).parts[0]
    allowed = layers[folder] | {folder}
    text = path.read_text(encoding="utf-8", errors="replace")
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
        if path.name.endswith("_test.cc") and (src.parent / "tests" / name).is_file():
            continue
        if target not in layers:
            errors.append(f'{where}: "{name}" names folder \'{target}\', which has no row in LAYERS')
        elif target not in allowed:
            errors.append(f"{where}: '{folder}' may not include '{target}' (\"{name}\"); its row in LAYERS allows: "
                          f"{' '.join(sorted(allowed - {folder})) or 'nothing'}")
        elif not (src / name).is_file():
            errors.append(f'{where}: "{name}" does not exist under {src}')


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
    layers = read_layers(src / "LAYERS", errors)
    files = 0
    for folder in sorted(path for path in src.iterdir() if path.is_dir()):
        inside = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix in SUFFIXES)
        if folder.name not in layers:
            errors.append(f"{folder}: has no row in {src}/LAYERS; add one that says what it may include")
            continue
        if not inside:
            errors.append(f"{folder}: is empty; a folder comes with its first source file")
        for path in inside:
            files += 1
            check_file(path, src, layers, errors)
    for error in errors:
        print(error, file=sys.stderr)
    print(f"layers: {files} files, {len(layers)} rows, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
