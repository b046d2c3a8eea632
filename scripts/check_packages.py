#!/usr/bin/env python3
"""Installs the packages of build/packages as a user would, each in a clean root, has them serve, and removes them again.

Usage: scripts/check_packages.py [--make] [--suite SUITE] [deb|tar|wheel|image|install]...   (default: deb)
  --make         make the packages first (scripts/make_packages.sh)
  --suite SUITE  the release of the clean root: bookworm, trixie or noble (default: the one that this machine runs)
  install        `cmake --install` of build/release into an empty folder
Needs root, debootstrap and the network; where mounting is not allowed it says so and checks nothing. Logs: build/packages/logs.
The last line reads `N passed, M failed`.
"""
import argparse
import http.client
import json
import pathlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import clean_root

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGES = ROOT / "build" / "packages"
LOGS = PACKAGES / "logs"
READY_SECONDS = 120
results = []


def check(what, passed, detail=""):
    results.append(bool(passed))
    print(f"{'ok    ' if passed else 'FAILED'} {what}" + (f"\n       {detail}" if detail and not passed else ""), flush=True)


def package(pattern):
    found = sorted(PACKAGES.glob(pattern))
    if len(found) != 1:
        raise RuntimeError(f"{len(found)} files match {PACKAGES / pattern}, one is needed; scripts/make_packages.sh makes it")
    return found[0]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ask(port, method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
    reply = connection.getresponse()
    return reply.status, reply.read().decode()


def first_answer(process, port):
    """The text of a streamed answer, as soon as the server answers at all."""
    end = time.monotonic() + READY_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            if ask(port, "GET", "/ready")[0] == 200:
                break
        except OSError:
            pass
        time.sleep(0.05)
    status, text = ask(port, "POST", "/v1/chat/completions", {
        "messages": [{"role": "user", "content": "What is 4 + 5?"}], "max_tokens": 16, "stream": True})
    if status != 200 or "data: [DONE]" not in text:
        raise RuntimeError(f"{status}: {text[:400]}")
    chunks = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: {")]
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])


def check_serving(name, start, model):
    """`start(port, log)` starts a server of the model `model`."""
    LOGS.mkdir(parents=True, exist_ok=True)
    port, log = free_port(), LOGS / f"{name}.log"
    began = time.monotonic()
    process = start(port, log)
    try:
        answer = first_answer(process, port)
        check(f"{name}: the right answer, {time.monotonic() - began:.1f} s after the start", answer == "4 + 5 = 9", answer)
        check(f"{name}: it serves the model {model}", f'"{model}"' in ask(port, "GET", "/v1/models")[1])
        check(f"{name}: it has the page", "<html" in ask(port, "GET", "/")[1])
        process.send_signal(signal.SIGTERM)
        check(f"{name}: SIGTERM ends it with code 0", process.wait(30) == 0, f"code {process.returncode}")
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
        check(f"{name}: it serves", False, f"{error}; {log} ends with:\n" + "\n".join(log.read_text(errors="replace").splitlines()[-10:]))
    finally:
        process.kill()
        process.wait()


def check_requests(name, root, program):
    """Whether the program finds libcurl, which it loads for requests alone."""
    try:
        said = root.run(program, "chat", "--url", "http://127.0.0.1:1")
    except RuntimeError as error:
        said = str(error)
    check(f"{name}: it makes requests", "no answer from http://127.0.0.1:1" in said, said)


def unit_of(root):
    """{key: [values]} of the service's unit file."""
    unit = {}
    for line in (root.path / "usr/lib/systemd/system/tandem.service").read_text().splitlines():
        key, separator, value = line.partition("=")
        if separator and not line.startswith("#"):
            unit.setdefault(key, []).append(value)
    return unit


def start_as_unit(root, port, log):
    """What systemd would do with the unit: its user, folders, variables and command, on another port."""
    unit = unit_of(root)
    user = unit["User"][0]
    for kind, folder in (("StateDirectory", "/var/lib/"), ("CacheDirectory", "/var/cache/")):
        root.run("install", "-d", "-o", user, "-g", user, folder + unit[kind][0])
    variables = dict(value.split("=", 1) for value in unit["Environment"])
    for line in (root.path / unit["EnvironmentFile"][0].lstrip("/")).read_text().splitlines():
        if line and not line.startswith("#"):
            variables.update([line.split("=", 1)])
    command = [re.sub(r"\$\{(\w+)\}", lambda match: variables[match[1]], word) for word in shlex.split(unit["ExecStart"][0])]
    variables["HOME"] = "/var/lib/tandem"  # as systemd takes it from the user
    return root.start("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--no-new-privs", "--bounding-set=-all",
                      *command, "--port", port, log=log, env=variables)


def check_deb(suite):
    release = {"bookworm": "deb12", "trixie": "deb13", "noble": "ubuntu24.04"}[suite]
    deb = package(f"*~{release}_*.deb")
    version = subprocess.run(["dpkg-deb", "-f", deb, "Version"], capture_output=True, text=True, check=True).stdout.strip()
    with clean_root.clean_root(suite) as root:
        began = time.monotonic()
        said = root.run("apt-get", "install", "-y", "-q", "--no-install-recommends", root.put(deb))
        check(f"deb: installed in {time.monotonic() - began:.1f} s", "Setting up tandem-serve" in said, said[-2000:])
        check("deb: says that the service is not started", "the service is not started yet" in said)
        check("deb: installed as packed", root.run("dpkg", "--verify", "tandem-serve") == "")
        shown = root.run("tandem", "--version").split()[0]
        check("deb: program and package have one version", re.sub(r"[-~+.]", "", version).startswith(re.sub(r"[-+.]", "", shown)),
              f"{shown}, {version}")
        for path in ("/usr/share/man/man1/tandem.1.gz", "/usr/share/bash-completion/completions/tandem",
                     "/usr/share/zsh/vendor-completions/_tandem", "/usr/share/tandem/grafana.json", "/usr/share/tandem/alerts.yaml"):
            check(f"deb: {path}", root.has(path))
        verified = subprocess.run(["systemd-analyze", "verify", "--man=no", f"--root={root.path}", "tandem.service"],
                                  capture_output=True, text=True)
        complaints = [line for line in verified.stderr.splitlines() if "sysinit.target not found" not in line]  # systemd's own, not there
        check("deb: systemd accepts the unit", not complaints, "\n".join(complaints))
        check_requests("deb", root, "tandem")
        check_serving("deb", lambda port, log: start_as_unit(root, port, log), "tandem-tiny")
        check_removal(root, f"/root/{deb.name}")


def check_removal(root, deb):
    """An upgrade, a removal and a purge leave what the user made."""
    with open(root.path / "etc/tandem/tandem.yaml", "a") as config:
        config.write("max-queue: 7\n")
    (root.path / "etc/tandem/keys").write_text("secret\n")
    (root.path / "var/lib/tandem/record").write_text("mine\n")
    root.run("apt-get", "install", "-y", "-q", "--reinstall", deb)
    check("deb: an upgrade keeps the configuration", "max-queue: 7" in (root.path / "etc/tandem/tandem.yaml").read_text())
    said = root.run("apt-get", "remove", "-y", "-q", "tandem-serve")
    check("deb: removed", not root.has("/usr/bin/tandem") and not root.has("/usr/share/tandem"))
    check("deb: removing keeps configuration and keys, and says so",
          root.has("/etc/tandem/tandem.yaml") and root.has("/etc/tandem/keys") and "kept: /etc/tandem" in said, said)
    said = root.run("apt-get", "purge", "-y", "-q", "tandem-serve")
    check("deb: purging removes the configuration and the cache", not root.has("/etc/tandem/tandem.yaml") and not root.has("/var/cache/tandem"))
    check("deb: purging keeps keys and records, and says so",
          root.has("/etc/tandem/keys") and root.has("/var/lib/tandem/record") and "kept: /var/lib/tandem" in said, said)


def foreign_libraries(root, program):
    """The libraries that the program, or the libcurl that it opens, takes from the system, and those it does not find."""
    own = str(pathlib.PurePosixPath(program).parent.parent)
    lines = root.run("env", "LD_TRACE_LOADED_OBJECTS=1", f"LD_PRELOAD={own}/lib/tandem/libcurl.so.4", program).splitlines()
    return [line.split()[0] for line in lines if own not in line and not re.search(r"linux-vdso|ld-linux|lib(c|m)\.so\.6|libresolv\.so\.2", line)]


def check_tar(suite):
    archive = package("*.tar.gz")
    with clean_root.clean_root(suite) as root:
        place = root.put(archive)
        for folder in ("/opt/tandem", "/srv/elsewhere/tandem"):
            root.run("mkdir", "-p", folder)
            root.run("tar", "-xzf", place, "-C", folder, "--strip-components=1")
            check(f"tar: in {folder} only glibc is the system's", not foreign_libraries(root, f"{folder}/bin/tandem"),
                  str(foreign_libraries(root, f"{folder}/bin/tandem")))
        root.run("rm", "-r", "/opt/tandem")
        tandem = "/srv/elsewhere/tandem"
        check_requests("tar", root, f"{tandem}/bin/tandem")
        check_serving("tar", lambda port, log: root.start(
            f"{tandem}/bin/tandem", "serve", "--port", port,
            log=log, env={"HOME": "/tmp"}), "tandem-tiny")


def check_wheel(suite):
    wheel = package("*.whl")
    with clean_root.clean_root(suite) as root:
        root.run("apt-get", "install", "-y", "-q", "--no-install-recommends", "python3-venv")
        root.run("python3", "-m", "venv", "/opt/venv")
        before = root.run("find", "/opt/venv", "-type", "f", "-not", "-name", "*.pyc")
        root.run("/opt/venv/bin/pip", "install", "--no-index", "--disable-pip-version-check", root.put(wheel))
        packages = root.run("/opt/venv/bin/python", "-c", "import tandem_serve; print(tandem_serve.PROGRAM.parent.parent)").strip()
        check("wheel: only glibc is the system's", not foreign_libraries(root, f"{packages}/bin/tandem"),
              str(foreign_libraries(root, f"{packages}/bin/tandem")))
        check_requests("wheel", root, "/opt/venv/bin/tandem")
        check_serving("wheel", lambda port, log: root.start(
            "/opt/venv/bin/tandem", "serve", "--port", port,
            log=log, env={"HOME": "/tmp"}), "tandem-tiny")
        root.run("/opt/venv/bin/pip", "uninstall", "-y", "tandem-serve")
        check("wheel: removing it leaves nothing", root.run("find", "/opt/venv", "-type", "f", "-not", "-name", "*.pyc") == before)


def check_image(suite):
    """The image's root file system, made by the script that Containerfile runs, with a clean root as its first stage."""
    archive = package("*.tar.gz")
    with clean_root.clean_root(suite) as stage:
        stage.run("apt-get", "install", "-y", "-q", "--no-install-recommends", "ca-certificates")
        place = stage.put(archive)
        stage.run("sh", stage.put(ROOT / "packaging" / "image_root.sh"), place, "/image")
        image = clean_root.Root(stage.path / "image")
        size = sum(file.lstat().st_size for file in image.path.rglob("*") if file.is_file() and not file.is_symlink())
        check(f"image: {size / 1e6:.0f} MB, less than 120", size < 120e6)
        check("image: has no shell", not image.has("/bin") and not image.has("/usr/bin"))
        recipe = (ROOT / "packaging" / "Containerfile").read_text()
        command = json.loads(re.search(r"^ENTRYPOINT (.*)$", recipe, re.M)[1]) + json.loads(re.search(r"^CMD (.*)$", recipe, re.M)[1])
        variables = dict(word.split("=", 1) for word in re.search(r"^ENV (.*)$", recipe, re.M)[1].split())
        del variables["PATH"]  # of the image; the commands that enter it are this machine's
        user = re.search(r"^USER (.*)$", recipe, re.M)[1]
        check("image: its user is not root", not user.startswith("0"))
        enter = clean_root.ENTER.replace("exec chroot", f"exec chroot --userspec={user}")
        check_serving("image", lambda port, log: image.start(*command, "--port", port, log=log, env=variables, enter=enter), "tandem-tiny")


def check_install(_):
    with tempfile.TemporaryDirectory() as prefix:
        subprocess.run(["cmake", "--install", ROOT / "build" / "release", "--prefix", prefix], check=True, stdout=subprocess.DEVNULL)
        folder = pathlib.Path(prefix)
        check("install: the unit names the program", f"ExecStart={prefix}/bin/tandem " in (folder / "lib/systemd/system/tandem.service").read_text())
        check_serving("install", lambda port, log: subprocess.Popen(
            [folder / "bin/tandem", "serve", "--port", str(port)],
            stdout=open(log, "wb"), stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL), "tandem-tiny")


CHECKS = {"deb": check_deb, "tar": check_tar, "wheel": check_wheel, "image": check_image, "install": check_install}


def this_release():
    text = pathlib.Path("/etc/os-release").read_text()
    found = re.search(r"^VERSION_CODENAME=(\w+)", text, re.M)
    return found[1] if found else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", choices=[*CHECKS, []], metavar="deb|tar|wheel|image|install")
    parser.add_argument("--make", action="store_true")
    parser.add_argument("--suite", choices=clean_root.MIRRORS, default=this_release())
    options = parser.parse_args()
    kinds = options.kinds or ["deb"]
    if options.make:
        made = {"deb": "deb", "tar": "tar", "wheel": "wheel", "image": "tar", "install": "tar"}
        subprocess.run([ROOT / "scripts" / "make_packages.sh", *sorted({made[kind] for kind in kinds})], check=True)
    if kinds != ["install"] and (reason := clean_root.why_not()):
        print(f"check_packages.py: skipped, nothing is checked: {reason}\n0 passed, 0 failed")
        return 0
    for kind in kinds:
        try:
            CHECKS[kind](options.suite)
        except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
            check(kind, False, str(error))
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
