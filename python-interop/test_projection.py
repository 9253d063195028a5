"""What libgit2 and dulwich find in the directory of a repository, once it is projected."""

import dulwich.repo
import pygit2
import pytest

from harness import git, refstone


@pytest.fixture
def repository(scratch, work):
    git(work.directory, "tag", "-a", "-m", "a tag", "v1")
    path = scratch / "r.git"
    refstone("import", work.directory, path)
    return path


# Breaks: a projection without HEAD (it still leads to a name that is not legal).
def test_libgit2_finds_the_refs_after_a_projection(repository, work):
    tip, older = work.commits[-1], work.commits[0]
    assert list(pygit2.Repository(repository).references) == []

    refstone("project", repository)
    projected = pygit2.Repository(repository)
    assert set(projected.references) == {"refs/heads/main", "refs/tags/v1"}
    assert str(projected.head.target) == tip
    assert str(projected.references["refs/tags/v1"].peel(pygit2.Commit).id) == tip
    assert [str(commit.id) for commit in projected.walk(tip)] == work.commits[::-1]

    script = f"update refs/heads/main {older} {tip}\n".encode()
    refstone("update-ref", "--stdin", repository, input=script)
    assert str(pygit2.Repository(repository).head.target) == tip, "as fresh as its last run"
    refstone("project", repository)
    assert str(pygit2.Repository(repository).head.target) == older


def test_dulwich_reads_an_export_but_no_repository_with_precious_objects(
        repository, scratch, work):
    refstone("project", repository)
    with pytest.raises(dulwich.repo.UnsupportedExtension, match="preciousObjects"):
        dulwich.repo.Repo(str(repository))

    refstone("export", repository, scratch / "copy.git")
    tip = work.commits[-1].encode()
    exported = dulwich.repo.Repo(str(scratch / "copy.git"))
    assert exported.head() == tip
    assert exported.get_refs()[b"refs/heads/main"] == tip
    assert exported.get_peeled(b"refs/tags/v1") == tip
    assert [entry.commit.id for entry in exported.get_walker()][-1] == work.commits[0].encode()
