"""Versions from git: cmake/version.cmake on repositories made up for it."""
import subprocess

import pytest
from conftest import ROOT


class Repository:
    def __init__(self, folder):
        self.folder = folder
        self.git("init", "-q")

    def git(self, *arguments):
        subprocess.run(["git", "-C", self.folder, "-c", "user.name=test", "-c", "user.email=test@test.invalid", *arguments],
                       check=True, capture_output=True)

    def commit(self, number):
        for i in range(number):
            (self.folder / "file").write_text(f"{i}\n")
            self.git("add", "file")
            self.git("commit", "-q", "--allow-empty", "-m", "change")

    def commit_id(self):
        return subprocess.run(["git", "-C", self.folder, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True,
                              check=True).stdout.strip()


@pytest.fixture
def repository(tmp_path):
    (tmp_path / "source").mkdir()
    return Repository(tmp_path / "source")


def versions(folder, release):
    """(program, commit, Debian, Python)"""
    out = folder.parent
    subprocess.run(["cmake", f"-DSOURCE={folder}", f"-DRELEASE={release}", f"-DOUTPUT={out}/version.cc", f"-DPACKAGES={out}/version.cmake",
                    "-P", ROOT / "cmake" / "version.cmake"], check=True, capture_output=True)
    source = (out / "version.cc").read_text().split('"')
    packages = dict(line[4:-1].split(" ", 1) for line in (out / "version.cmake").read_text().splitlines())
    assert source[3] == packages["TANDEM_VERSION"].strip('"')
    return source[3], source[5], packages["TANDEM_VERSION_DEBIAN"].strip('"'), packages["TANDEM_VERSION_PYTHON"].strip('"')


def test_before_the_first_tag_commits_are_counted_towards_the_release(repository):
    repository.commit(3)
    commit = repository.commit_id()
    assert versions(repository.folder, "0.1.0") == ("0.1.0-dev.3", commit, f"0.1.0~dev3.g{commit}", f"0.1.0.dev3+g{commit}")


def test_at_a_tag_the_version_is_the_tag(repository):
    repository.commit(2)
    repository.git("tag", "v0.1.0")
    commit = repository.commit_id()
    assert versions(repository.folder, "0.1.0") == ("0.1.0", commit, "0.1.0", "0.1.0")
    (repository.folder / "file").write_text("changed\n")
    assert versions(repository.folder, "0.1.0") == ("0.1.0", f"{commit}-changed", f"0.1.0+g{commit}.changed", f"0.1.0+g{commit}.changed")


def test_after_a_tag_commits_are_counted_from_it(repository):
    repository.commit(2)
    repository.git("tag", "-a", "-m", "first", "v0.1.0")
    repository.git("tag", "nightly-7")  # no version
    repository.commit(4)
    commit = repository.commit_id()
    assert versions(repository.folder, "0.1.0") == ("0.1.0+4", commit, f"0.1.0+4.g{commit}", f"0.1.0.post4+g{commit}")
    assert versions(repository.folder, "0.2.0") == ("0.2.0-dev.4", commit, f"0.2.0~dev4.g{commit}", f"0.2.0.dev4+g{commit}")


def test_debian_sorts_them_by_age(repository):
    repository.commit(1)
    ages = [versions(repository.folder, "0.1.0")[2]]
    repository.git("tag", "v0.1.0")
    ages.append(versions(repository.folder, "0.1.0")[2])
    repository.commit(9)
    ages.append(versions(repository.folder, "0.1.0")[2])
    repository.commit(2)
    ages += [versions(repository.folder, "0.1.0")[2], versions(repository.folder, "0.2.0")[2]]
    for older, newer in zip(ages, ages[1:]):
        assert subprocess.run(["dpkg", "--compare-versions", older, "lt", newer]).returncode == 0, (older, newer)


def test_sources_without_git_are_the_release(tmp_path):
    (tmp_path / "source").mkdir()
    assert versions(tmp_path / "source", "0.1.0") == ("0.1.0", "", "0.1.0", "0.1.0")
