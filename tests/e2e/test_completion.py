"""What `tandem completion` and `tandem manual` print is read by the programs it is for: bash, zsh and man."""
import itertools
import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import time

import pytest


def printed(binary, *arguments):
    done = subprocess.run([binary, *arguments], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    return done.stdout


def need(program):
    if shutil.which(program):
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"{program} is missing; scripts/install_packages.sh test installs it", pytrace=False)
    pytest.skip(f"{program} is not installed")


def complete_in_bash(script, *words):
    """What bash proposes for the last of `words`."""
    line = " ".join(shlex.quote(word) for word in words)
    program = f'{script}\nCOMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _tandem; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "--norc", "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    return done.stdout.split()


@pytest.mark.parametrize("words, proposed", [
    (["tandem", "comp"], ["completion"]),
    (["tandem", "completion", ""], ["bash", "zsh"]),
    (["tandem", "bench", "ker"], ["kernels"]),
    (["tandem", "serve", "/model", "--max-num-s"], ["--max-num-seqs"]),
    (["tandem", "serve", "--log-format", "j"], ["json"]),
    (["tandem", "serve", "--log-format", "=", "t"], ["text"]),
    (["tandem", "serve", "--log-format", "="], ["text", "json"]),
    (["tandem", "serve", "--port", ""], []),
    (["tandem", "serve", "/model", ""], []),
    (["tandem", "serve", "--tensor-parallel"], []),  # vLLM's, which the help hides
    (["tandem", "--ver"], ["--version"]),
])
def test_bash_completes(binary, words, proposed):
    assert complete_in_bash(printed(binary, "completion", "bash"), *words) == proposed


def test_bash_knows_every_flag_of_the_help(binary):
    script = printed(binary, "completion", "bash")
    for command in (["serve"], ["simulate"], ["bench", "serve"], ["batch", "run"], ["model", "make"]):
        shown = {word for line in printed(binary, *command, "--help").splitlines() if line.startswith("  -")
                 for word in itertools.takewhile(lambda word: word.startswith("-"), re.sub(r"\{\w+\}", "", line).split())}
        assert shown <= set(complete_in_bash(script, "tandem", *command, "-"))


class Terminal:
    """An interactive zsh."""

    def __init__(self, folder):
        self.process, self.file = pty.fork()
        if self.process == 0:
            os.execvpe("zsh", ["zsh", "-f", "-i"], os.environ | {"HOME": str(folder), "TERM": "dumb"})

    def send(self, text):
        os.write(self.file, text.encode())

    def read_until(self, text, seconds=60):
        seen, end = "", time.monotonic() + seconds
        while text not in seen:
            left = end - time.monotonic()
            assert left > 0 and select.select([self.file], [], [], left)[0], f"no {text!r} in {seen!r}"
            seen += os.read(self.file, 4096).decode(errors="replace")
        return seen

    def close(self):
        self.send("\x15exit\n")
        os.close(self.file)
        os.waitpid(self.process, 0)


def test_zsh_completes(binary, tmp_path):
    need("zsh")
    (tmp_path / "_tandem").write_text(printed(binary, "completion", "zsh"))
    terminal = Terminal(tmp_path)
    terminal.send(f"unsetopt zle_bracketed_paste; fpath=({tmp_path} $fpath); autoload -Uz compinit; compinit -u -d {tmp_path}/dump; "
                  "print rea''dy\n")
    terminal.read_until("ready")
    for typed, becomes in (("tandem compl\t", "completion "), ("tandem completion z\t", "zsh "), ("tandem bench ker\t", "kernels "),
                           ("tandem serve --max-num-s\t", "--max-num-seqs="), ("tandem serve --log-format=j\t", "--log-format=json "),
                           ("tandem serve --port 8 --log-format j\t", "--log-format json ")):
        terminal.send("\x15" + typed)
        terminal.read_until(becomes)
    terminal.close()


def test_man_shows_the_manual_without_a_warning(binary, tmp_path):
    need("man")
    page = tmp_path / "tandem.1"
    page.write_text(printed(binary, "manual"))
    done = subprocess.run(["man", "--warnings", "-l", str(page)], capture_output=True, text=True, timeout=60,
                          env=os.environ | {"MANWIDTH": "100", "LC_ALL": "C.UTF-8", "MANPAGER": "cat"})
    assert done.returncode == 0 and done.stderr == ""
    assert "tandem - LLM inference" in done.stdout
    for text in ("TANDEM SERVE", "TANDEM BENCH KERNELS", "--max-num-seqs N", "--log-format text|json", "TANDEM_MAX_NUM_SEQS=64",
                 "  curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' \\\n"):
        assert text in done.stdout
