#!/usr/bin/env python3
"""Makes a wheel of the archive that `cpack -G TGZ` made: the program with its libraries, for `pip install`.

The wheel holds the archive's bin, lib and share in the package tandem_serve, and installs a command `tandem` that becomes the
program. The same archive gives the same bytes.

Usage: packaging/make_wheel.py ARCHIVE VERSION FOLDER   VERSION as PEP 440 has it; prints the path of the wheel
"""
import base64
import hashlib
import pathlib
import re
import sys
import tarfile
import zipfile

LAUNCHER = '''"""Tandem, an LLM inference server: the program itself lies in bin/ beside this file."""
import os
import pathlib
import sys

PROGRAM = pathlib.Path(__file__).resolve().parent / "bin" / "tandem"


def main():
    os.execv(PROGRAM, ["tandem", *sys.argv[1:]])
'''
MAIN = "from tandem_serve import main\n\nmain()\n"
METADATA = """Metadata-Version: 2.1
Name: tandem-serve
Version: {version}
Summary: LLM inference server for requests with and without deadlines
License: Apache-2.0
Requires-Python: >=3.8
Description-Content-Type: text/markdown

`tandem serve MODEL_DIR` serves Llama, Mistral, Qwen2 and Qwen3 models on CPUs over the OpenAI API.
`tandem serve` alone serves Tandem-Tiny, a model that adds, copies and looks up: enough to try the server.
"""
LEFT_OUT = ("lib/systemd/", "share/man/", "share/bash-completion/", "share/zsh/")


def glibc_needed(files):
    """(2, 36): the newest version of glibc's symbols that a program or library asks for."""
    versions = {(2, 17)}
    for data, _ in files.values():
        if data.startswith(b"\x7fELF"):
            versions |= {(int(major), int(minor)) for major, minor in re.findall(rb"GLIBC_(\d+)\.(\d+)", data)}
    return max(versions)


def read_archive(path):
    """{path below the archive's folder: (bytes, whether it is a program)}"""
    files = {}
    with tarfile.open(path) as archive:
        for member in archive.getmembers():
            name = member.name.split("/", 1)[-1]
            if member.isfile() and not name.startswith(LEFT_OUT):
                files[name] = (archive.extractfile(member).read(), bool(member.mode & 0o100))
    return files


def make_wheel(archive, version, folder):
    machine = re.search(r"-linux-(\w+)\.tar\.gz$", archive.name)[1]
    program_files = read_archive(archive)
    tag = "py3-none-manylinux_{}_{}_{}".format(*glibc_needed(program_files), machine)
    info = f"tandem_serve-{version}.dist-info"
    files = {f"tandem_serve/{name}": content for name, content in program_files.items()}
    for name, text in {
        "tandem_serve/__init__.py": LAUNCHER,
        "tandem_serve/__main__.py": MAIN,
        f"{info}/METADATA": METADATA.format(version=version),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: tandem\nRoot-Is-Purelib: false\nTag: {tag}\n",
        f"{info}/entry_points.txt": "[console_scripts]\ntandem = tandem_serve:main\n",
    }.items():
        files[name] = (text.encode(), False)
    record = ""
    for name, (data, _) in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    files[f"{info}/RECORD"] = (f"{record}{info}/RECORD,,\n".encode(), False)

    path = folder / f"tandem_serve-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, (data, is_program) in sorted(files.items()):
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if is_program else 0o100644) << 16
            wheel.writestr(entry, data)
    return path


def main():
    if len(sys.argv) != 4:
        print(__doc__, file=sys.stderr)
        return 2
    print(make_wheel(pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
