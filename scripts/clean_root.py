"""Root file systems with nothing but a release's essential packages, made by debootstrap, and programs run in them.

Needs root and the right to mount. A release is bootstrapped once and kept as an archive in build/packages/roots. No process or mount of a
root outlives the program that made it: each command has a mount namespace of its own.
"""
import os
import pathlib
import shutil
import subprocess
import tempfile

ROOTS = pathlib.Path(__file__).resolve().parent.parent / "build" / "packages" / "roots"
DEBIAN = os.environ.get("TANDEM_DEBIAN_MIRROR", "http://deb.debian.org/debian")
UBUNTU = os.environ.get("TANDEM_UBUNTU_MIRROR", "http://archive.ubuntu.com/ubuntu")
MIRRORS = {  # mirror, components, debootstrap's script, which older versions of it do not know by the suite's name
    "bookworm": (DEBIAN, "main", "sid"), "trixie": (DEBIAN, "main", "sid"), "noble": (UBUNTU, "main,universe", "gutsy")}

# $1: the root; $2: "ro" for one whose files cannot be changed, but for those of a service's own folders; then the command.
ENTER = """
set -e
root=$1 mode=$2; shift 2
mount --make-rprivate /
mount --bind "$root" "$root"
for kernel in proc sys dev; do mkdir -p "$root/$kernel"; mount --rbind "/$kernel" "$root/$kernel"; done
if [ "$mode" = ro ]; then
  mount -t tmpfs tmpfs "$root/tmp"
  for folder in var/lib/tandem var/cache/tandem; do
    if [ -d "$root/$folder" ]; then mount --bind "$root/$folder" "$root/$folder"; fi
  done
  mount -o remount,bind,ro "$root"
fi
exec chroot "$root" "$@"
"""
CLEAN = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}


def why_not():
    """Why roots cannot be made here; empty: they can."""
    if os.geteuid() != 0:
        return "it needs root"
    if shutil.which("debootstrap") is None:
        return "debootstrap is missing (scripts/install_packages.sh package)"
    tried = subprocess.run(["unshare", "-m", "sh", "-c", "mount --make-rprivate / && mount -t tmpfs tmpfs /mnt && chroot / true"],
                           capture_output=True, text=True)
    return "" if tried.returncode == 0 else f"mount or chroot is not allowed: {tried.stderr.strip()}"


def base_archive(suite):
    archive = ROOTS / f"{suite}.tar"
    if archive.exists():
        return archive
    mirror, components, script = MIRRORS[suite]
    ROOTS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOTS) as folder:
        print(f"bootstrapping {suite} from {mirror}", flush=True)
        log = ROOTS / f"{suite}.log"
        with open(log, "wb") as out:
            made = subprocess.run(["debootstrap", "--variant=minbase", f"--components={components}", suite, folder, mirror,
                                   f"/usr/share/debootstrap/scripts/{script}"], stdout=out, stderr=subprocess.STDOUT)
        if made.returncode != 0:
            raise RuntimeError(f"debootstrap failed; {log} says why")
        root = Root(pathlib.Path(folder))
        root.run("apt-get", "update", "-qq")
        root.run("apt-get", "clean")
        partial = archive.with_suffix(".partial")
        subprocess.run(["tar", "-C", folder, "--exclude=./proc/*", "--exclude=./sys/*", "--exclude=./dev/*", "-cf", partial, "."], check=True)
        partial.rename(archive)
    return archive


class Root:
    def __init__(self, path):
        self.path = path
        etc = path / "etc"
        if etc.is_dir() and not (etc / "resolv.conf").is_symlink():
            shutil.copy("/etc/resolv.conf", etc / "resolv.conf")
        policy = path / "usr/sbin/policy-rc.d"  # installing a package starts nothing
        if policy.parent.is_dir():
            policy.write_text("#!/bin/sh\nexit 101\n")
            policy.chmod(0o755)

    def command(self, arguments, mode="rw", enter=ENTER):
        return ["unshare", "-m", "sh", "-c", enter, "enter", str(self.path), mode, *map(str, arguments)]

    def run(self, *arguments):
        """What the command printed. Raises where it fails."""
        done = subprocess.run(self.command(arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=CLEAN,
                              stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, arguments))}: exit code {done.returncode}\n{done.stdout}")
        return done.stdout

    def start(self, *arguments, log, env=None, enter=ENTER):
        """A process in the root, which it cannot write to."""
        with open(log, "wb") as out:
            return subprocess.Popen(self.command(arguments, "ro", enter), stdout=out, stderr=subprocess.STDOUT, env=CLEAN | (env or {}),
                                    stdin=subprocess.DEVNULL)

    def put(self, file, folder="/root"):
        """Copies a file of this machine into the root; its path there."""
        (self.path / folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
        shutil.copy(file, self.path / folder.lstrip("/"))
        return f"{folder}/{pathlib.Path(file).name}"

    def has(self, path):
        return os.path.lexists(self.path / path.lstrip("/"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.path)


def clean_root(suite):
    archive = base_archive(suite)
    folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{suite}-", dir=ROOTS))
    subprocess.run(["tar", "-C", folder, "-xf", archive], check=True)
    folder.chmod(0o755)  # users other than root enter it, too
    return Root(folder)
