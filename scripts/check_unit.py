#!/usr/bin/env python3
"""Boots a virtual machine, installs the Debian package of build/packages in it, and tries its unit under the systemd that runs there.

Usage: scripts/check_unit.py [--suite SUITE] [--accel kvm|tcg]
  --suite SUITE   the release of the machine: bookworm or trixie (default: the release of this machine)
  --accel HOW     tcg emulates the processor; kvm is faster on machines that allow it (default: tcg)
The machine has no network. It needs root, debootstrap, mke2fs, qemu-system-x86_64 (scripts/install_packages.sh package boot), 4 GB of
disk, and the network while its disk is made. Logs in build/packages/logs: unit-SUITE.log has each command with its output,
unit-SUITE-console.log the kernel's console, unit-SUITE-journal.log the service's log. The last line reads `N passed, M failed`.
"""
import argparse
import base64
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

import check_packages
import clean_root
from check_packages import LOGS, check

# Runs commands that come over the second serial port: a line of base64 each. Answers with two lines: exit code, output in base64.
AGENT = r"""#!/bin/bash
stty -F /dev/ttyS1 raw -echo
exec 3<>/dev/ttyS1
echo "agent ready" >&3
while read -r line <&3; do
  command=$(printf %s "$line" | base64 -d)
  output=$(cd / && bash -c "$command" 2>&1 </dev/null 3>&-; echo "code $?")
  printf '%s\n%s\n' "${output##*code }" "$(printf %s "${output%code *}" | base64 -w0)" >&3
done
"""
AGENT_UNIT = """[Unit]
Description=Runs commands that come over the second serial port
[Service]
ExecStart=/usr/local/sbin/agent
StandardOutput=journal+console
Environment=HOME=/root LC_ALL=C DEBIAN_FRONTEND=noninteractive SYSTEMD_PAGER= SYSTEMD_COLORS=0
[Install]
WantedBy=multi-user.target
"""
DISK = "3G"
MEMORY = "2G"
LIMIT_SECONDS = {"kvm": 120, "tcg": 900}  # for a boot, and for a command
JSON = "Content-Type: application/json"
ANSWER = "4 + 5 = 9"
EXPOSURE_AT_MOST = 2.5  # of `systemd-analyze security`, 0 to 10


def why_not():
    """Why no machine can be booted here; empty: it can."""
    if reason := clean_root.why_not():
        return reason
    for tool in ("qemu-system-x86_64", "mke2fs"):
        if shutil.which(tool) is None:
            return f"{tool} is missing (scripts/install_packages.sh package boot)"
    return ""


def make_disk(suite, deb, folder):
    """Makes disk, kernel and initrd in `folder`: a release with systemd, and the packages that ours depends on, downloaded but not installed.
    Returns the path of our package in the machine."""
    with clean_root.clean_root(suite) as root:
        (root.path / "etc/initramfs-tools/conf.d").mkdir(parents=True, exist_ok=True)
        said = root.run("apt-get", "install", "-y", "-q", "--no-install-recommends", "systemd-sysv", "dbus", "udev", "curl", "man-db",
                        "initramfs-tools", "linux-image-cloud-amd64")
        with open(LOGS / f"unit-{suite}.log", "w") as log:
            log.write(said)
        package = root.put(deb)
        root.run("apt-get", "install", "-y", "-q", "--no-install-recommends", "--download-only", package)
        agent = root.path / "usr/local/sbin/agent"
        agent.write_text(AGENT)
        agent.chmod(0o755)
        (root.path / "etc/systemd/system/agent.service").write_text(AGENT_UNIT)
        root.run("systemctl", "enable", "agent.service")
        (root.path / "usr/sbin/policy-rc.d").unlink()
        (root.path / "etc/hostname").write_text("tandem-check\n")
        for name in ("vmlinuz", "initrd.img"):
            shutil.copy(next((root.path / "boot").glob(f"{name}-*")), folder / name)
        subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", root.path, folder / "disk", DISK], check=True)
    return package


class Machine:
    """A virtual machine that runs commands."""

    def __init__(self, suite, folder, accel):
        self.limit = LIMIT_SECONDS[accel]
        self.log = open(LOGS / f"unit-{suite}.log", "a")
        address = folder / "serial"
        self.process = subprocess.Popen(
            ["qemu-system-x86_64", "-machine", "q35", "-accel", accel, "-cpu", "max", "-smp", "2", "-m", MEMORY, "-nic", "none",
             "-display", "none", "-monitor", "none", "-drive", f"file={folder / 'disk'},format=raw,if=virtio,cache=unsafe",
             "-kernel", folder / "vmlinuz", "-initrd", folder / "initrd.img", "-append", "root=/dev/vda rw console=ttyS0 panic=-1",
             "-serial", f"file:{LOGS / f'unit-{suite}-console.log'}", "-serial", f"unix:{address},server=on,wait=off"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT)
        self.serial = socket.socket(socket.AF_UNIX)
        end = time.monotonic() + 30
        while True:
            try:
                self.serial.connect(str(address))
                break
            except OSError:
                if time.monotonic() > end or self.process.poll() is not None:
                    raise RuntimeError(f"qemu did not start; {self.log.name} says why") from None
                time.sleep(0.1)
        self.received = b""

    def wait_booted(self):
        """Seconds until the machine has started all that it starts at boot, and how systemd calls the result."""
        began = time.monotonic()
        while self.line() != "agent ready":
            pass
        state = self.run("systemctl is-system-running --wait")[1].strip()
        return time.monotonic() - began, state

    def line(self):
        end = time.monotonic() + self.limit
        while b"\n" not in self.received:
            self.serial.settimeout(max(0.1, end - time.monotonic()))
            try:
                received = self.serial.recv(1 << 16)
            except TimeoutError:
                received = b""
            if not received:
                raise RuntimeError(f"the machine did not answer within {self.limit} s, or ended; see the logs in {LOGS}")
            self.received += received
        line, self.received = self.received.split(b"\n", 1)
        return line.decode(errors="replace").strip()

    def run(self, command):
        """(exit code, output) of a command of the shell."""
        self.serial.sendall(base64.b64encode(command.encode()) + b"\n")
        code, output = int(self.line()), base64.b64decode(self.line()).decode(errors="replace")
        self.log.write(f"# {command}\n{output}[{code}]\n")
        self.log.flush()
        return code, output

    def out(self, command):
        return self.run(command)[1].strip()

    def until(self, command, wanted, seconds=60):
        """Whether the command prints what is wanted, now or soon."""
        end = time.monotonic() + seconds
        while (said := self.out(command)) != wanted and time.monotonic() < end:
            time.sleep(0.2)
        return said == wanted

    def send(self, command):
        """For a command that ends the machine or its agent."""
        self.serial.sendall(base64.b64encode(command.encode()) + b"\n")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.serial.close()
        self.log.close()


def show(machine, name, unit="tandem"):
    return machine.out(f"systemctl show --value -p {name} {unit}")


def ask(machine, key=""):
    """The answer, or what was said instead."""
    bearer = f"--oauth2-bearer {key} " if key else ""
    body = '{"messages": [{"role": "user", "content": "What is 4 + 5?"}], "max_tokens": 16}'
    said = machine.out(f"curl -sS -m 60 {bearer}-H '{JSON}' -d '{body}' http://127.0.0.1:8000/v1/chat/completions")
    found = re.search(r'"content": ?"([^"]*)"', said)
    return found[1] if found else said


def ready(machine):
    return machine.run("curl -sS -f -o /dev/null -m 10 http://127.0.0.1:8000/ready")[0] == 0


def check_install(machine, package):
    code, said = machine.run(f"apt-get install -y -q --no-install-recommends {package}")
    check("installed while systemd runs", code == 0, said[-2000:])
    if code != 0:
        raise RuntimeError("the checks of the unit need the package")
    check("installing starts and enables nothing",
          show(machine, "ActiveState") == "inactive" and machine.out("systemctl is-enabled tandem") == "disabled")


def check_start(machine):
    began = time.monotonic()
    code, said = machine.run("systemctl enable --now tandem")
    seconds = time.monotonic() - began
    check(f"systemctl enable --now tandem, {seconds:.1f} s", code == 0, said + machine.out("journalctl -u tandem -o cat | tail -n 20"))
    check("it is active, and ready at once", show(machine, "ActiveState") == "active" and ready(machine))
    check("it shows its state to systemctl", show(machine, "StatusText") == "serves on port 8000", show(machine, "StatusText"))
    answer = ask(machine)
    check("the right answer over HTTP", answer == ANSWER, answer)


def check_limits(machine):
    """What the process may do, seen by the process: not what the unit asks for, but what is in force."""
    pid = show(machine, "MainPID")
    status = dict(re.findall(r"^(\w+):\s*(.*)$", machine.out(f"cat /proc/{pid}/status"), re.M))
    check("it runs as the user tandem, in no other group", machine.out(f"ps -o user=,group= -p {pid}").split() == ["tandem", "tandem"]
          and status["Groups"].split() in ([], [status["Gid"].split()[0]]), str(status))
    check("it has no capability and can gain none",
          status["NoNewPrivs"] == "1" and all(int(status[kind], 16) == 0 for kind in ("CapPrm", "CapEff", "CapBnd", "CapAmb")), str(status))
    check("its system calls are filtered", status["Seccomp"] == "2", status["Seccomp"])
    check("it may open 65536 files", re.search(r"Max open files +65536 ", machine.out(f"cat /proc/{pid}/limits")))
    inside = f"nsenter -t {pid} -m "  # as root, so that only the mounts stop it
    for folder in ("/usr/bin", "/etc/tandem", "/var/log", "/home", "/root", "/boot", "/sys/fs/cgroup"):
        said = machine.out(f"{inside}touch {folder}/tried")
        check(f"it cannot write to {folder}", "Read-only file system" in said, said)
    said = machine.out(f"{inside}sh -c 'echo 1 >/proc/sys/kernel/panic'")
    check("it cannot change the kernel's settings", "Read-only file system" in said, said)
    for folder in ("/var/lib/tandem", "/var/cache/tandem"):
        code, said = machine.run(f"{inside}setpriv --reuid=tandem --regid=tandem --clear-groups sh -c 'touch {folder}/tried && rm {folder}/tried'")
        check(f"it can write to {folder}, which is its own", code == 0 and machine.out(f"stat -c %U {folder}") == "tandem", said)
    machine.run("touch /tmp/of-others")
    check("its /tmp is its own", machine.run(f"{inside}test -e /tmp/of-others")[0] == 1)
    check("it sees no disk", machine.run(f"{inside}test -e /dev/vda")[0] == 1)
    check("it does not see the processes of others",
          machine.run(f"{inside}setpriv --reuid=tandem --regid=tandem --clear-groups test -e /proc/1/status")[0] == 1)


def check_security(machine):
    said = machine.out("systemd-analyze security --no-pager tandem")
    overall = re.search(r"Overall exposure level for tandem.service: ([0-9.]+) (\w+)", said)
    print("\n".join(f"       {line}" for line in said.splitlines() if re.match(r"(✗|→|\S* *Overall)", line.strip())), flush=True)
    check(f"systemd-analyze security: exposure {overall[1] if overall else '?'}, at most {EXPOSURE_AT_MOST}",
          overall and float(overall[1]) <= EXPOSURE_AT_MOST, said[-1000:])


def check_reload(machine):
    machine.run("echo 'api-key-file: /etc/tandem/keys' >>/etc/tandem/tandem.yaml; install -m 640 -g tandem /dev/null /etc/tandem/keys; "
                "echo first-key-of-the-check >/etc/tandem/keys")
    before = show(machine, "MainPID")
    code, said = machine.run("systemctl restart tandem")
    check("systemctl restart: another process, ready at once", code == 0 and show(machine, "MainPID") != before and ready(machine), said)
    check("a restart reads tandem.yaml and the keys", "4 + 5" not in ask(machine) and ask(machine, "first-key-of-the-check") == ANSWER)
    before = show(machine, "MainPID")
    machine.run("echo second-key-of-the-check >>/etc/tandem/keys")
    code, said = machine.run("systemctl reload tandem")
    read = machine.until("journalctl -u tandem -o cat | grep -c 'SIGHUP: 2 API keys'", "1", 10)
    check("systemctl reload reads the keys, with the same process",
          code == 0 and read and ask(machine, "second-key-of-the-check") == ANSWER and show(machine, "MainPID") == before, said)
    machine.run("sed -i /api-key-file/d /etc/tandem/tandem.yaml")
    machine.run("systemctl restart tandem")


def check_kill(machine):
    before, restarts = show(machine, "MainPID"), int(show(machine, "NRestarts"))
    began = time.monotonic()
    machine.run(f"kill -9 {before}")
    back = machine.until("systemctl show -p ActiveState,NRestarts tandem | sort | xargs", f"ActiveState=active NRestarts={restarts + 1}")
    check(f"kill -9: it serves again after {time.monotonic() - began:.1f} s",
          back and show(machine, "MainPID") != before and ask(machine) == ANSWER, machine.out("systemctl status tandem"))


def check_wrong_option(machine):
    machine.run("echo 'no-such-option: 1' >>/etc/tandem/tandem.yaml")
    code, _ = machine.run("systemctl restart tandem")
    machine.run("sleep 7")  # more than RestartSec
    check("a wrong option: the start fails with the reason, and is not tried again",
          code != 0 and show(machine, "ActiveState") == "failed" and show(machine, "ExecMainStatus") == "2"
          and "no-such-option" in machine.out("journalctl -u tandem -o cat | tail -n 20"), machine.out("systemctl status tandem"))
    machine.run("sed -i /no-such-option/d /etc/tandem/tandem.yaml")
    code, said = machine.run("systemctl start tandem")
    check("after the mistake is mended it starts", code == 0 and ready(machine), said)


def check_stop(machine):
    """Stopped while it answers: the accepted requests are answered before it ends."""
    body = '{"prompt": "What is 4 + 5?", "max_tokens": 60, "ignore_eos": true}'
    machine.run(f"""for i in $(seq 4); do curl -sS -m 60 -H '{JSON}' -d '{body}' -o /tmp/answer-$i http://127.0.0.1:8000/v1/completions & done
        until curl -sS http://127.0.0.1:8000/load | grep -q -E '[1-9]'; do :; done; systemctl stop tandem; wait""")
    answered = machine.out("""grep -l '"completion_tokens": \\?60' /tmp/answer-* 2>/dev/null | wc -l""")
    refused = machine.out("""grep -l '"error"' /tmp/answer-* 2>/dev/null | wc -l""")
    drained = machine.out("journalctl -u tandem -o cat | grep -o 'draining: .*' | tail -n 1")
    check(f"systemctl stop while it answers: {answered} answered whole, {refused} refused ({drained})",
          int(answered) >= 1 and int(answered) + int(refused) == 4 and re.search(r"[1-9]\d* (running|waiting)", drained),
          machine.out("head -c 300 /tmp/answer-1"))
    state = machine.out("systemctl show -p ActiveState,Result,ExecMainCode,ExecMainStatus tandem | sort | xargs")
    check("it ended in order, with code 0", state == "ActiveState=inactive ExecMainCode=1 ExecMainStatus=0 Result=success", state)


def check_journal(machine, suite):
    journal = machine.out("journalctl -u tandem --no-pager")
    (LOGS / f"unit-{suite}-journal.log").write_text(journal + "\n")
    for what, pattern in (("the start with its version", r"tandem\[\d+\]: .*Tandem \d+\.\d+"), ("an access line", r"access.*chat/completions"),
                          ("the end", r"stopped$")):
        check(f"journalctl -u tandem has {what}", re.search(pattern, journal, re.M), journal[-1500:])
    check("no key is in it", "-key-of-the-check" not in journal)


def check_reboot(machine):
    machine.send("systemctl reboot")
    seconds, state = machine.wait_booted()
    check(f"rebooted in {seconds:.0f} s: the service was started by itself", show(machine, "ActiveState") == "active" and ask(machine) == ANSWER,
          machine.out("systemctl status tandem"))
    check("the system calls itself running", state == "running", machine.out("systemctl --failed --no-legend"))


def check_upgrade_and_removal(machine, package):
    before = show(machine, "MainPID")
    code, said = machine.run(f"apt-get install -y -q --reinstall {package}")
    check("an upgrade restarts the running service", code == 0 and show(machine, "ActiveState") == "active"
          and show(machine, "MainPID") != before and ask(machine) == ANSWER, said[-2000:])
    pid = show(machine, "MainPID")
    code, said = machine.run("apt-get remove -y -q tandem-serve")
    check("removing the package stops the service", code == 0 and machine.run(f"test -e /proc/{pid}")[0] == 1
          and show(machine, "LoadState") in ("not-found", "masked"), said[-2000:])
    code, said = machine.run("apt-get purge -y -q tandem-serve")
    check("after a purge nothing of the unit is left", code == 0 and not machine.out("find /etc/systemd /var/lib/systemd -name '*tandem*'"),
          said[-2000:])


def check_machine(suite, accel, deb):
    with tempfile.TemporaryDirectory(dir=clean_root.ROOTS) as name:
        folder = pathlib.Path(name)
        began = time.monotonic()
        package = make_disk(suite, deb, folder)
        print(f"disk of {suite} made in {time.monotonic() - began:.0f} s; booting by {accel}", flush=True)
        with Machine(suite, folder, accel) as machine:
            seconds, state = machine.wait_booted()
            version = machine.out("systemctl --version").split("\n", maxsplit=1)[0]
            check(f"booted in {seconds:.0f} s: {version}, Linux {machine.out('uname -r')}", state == "running",
                  machine.out("systemctl --failed --no-legend"))
            check_install(machine, package)
            check_start(machine)
            check_limits(machine)
            check_security(machine)
            check_reload(machine)
            check_kill(machine)
            check_wrong_option(machine)
            check_stop(machine)
            check_journal(machine, suite)
            check_reboot(machine)
            check_upgrade_and_removal(machine, package)
            machine.send("systemctl poweroff")
            check("the machine ended by itself", machine.process.wait(machine.limit) == 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", choices=["bookworm", "trixie"], default=check_packages.this_release())
    parser.add_argument("--accel", choices=["kvm", "tcg"], default="tcg")
    options = parser.parse_args()
    if reason := why_not():
        print(f"check_unit.py: {reason}", file=sys.stderr)
        return 1
    LOGS.mkdir(parents=True, exist_ok=True)
    try:
        release = {"bookworm": "deb12", "trixie": "deb13"}[options.suite]
        check_machine(options.suite, options.accel, check_packages.package(f"*~{release}_*.deb"))
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        check("the machine", False, str(error))
    results = check_packages.results
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
