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


# Breaks: a projection without HEAD (dulwich then reads the branch that is not legal).
def test_libgit2_and_dulwich_find_the_refs_after_a_projection(repository, work):
    tip, older = work.commits[-1], work.commits[0]
    assert list(pygit2.Repository(repository).references) == []
    assert b"refs/heads/main" not in dulwich.repo.Repo(str(repository)).get_refs()

    refstone("project", repository)
    by_libgit2 = pygit2.Repository(repository)
    assert set(by_libgit2.references) == {"refs/heads/main", "refs/tags/v1"}
    assert str(by_libgit2.head.target) == tip
    assert str(by_libgit2.references["refs/tags/v1"].peel(pygit2.Commit).id) == tip
    assert [str(commit.id) for commit in by_libgit2.walk(tip)] == work.commits[::-1]

    by_dulwich = dulwich.repo.Repo(str(repository))
    assert by_dulwich.head() == tip.encode()
    assert by_dulwich.get_refs()[b"refs/heads/main"] == tip.encode()
    assert by_dulwich.get_peeled(b"refs/tags/v1") == tip.encode()

    script = f"update refs/heads/main {older} {tip}\n".encode()
    refstone("update-ref", "--stdin", repository, input=script)
    assert str(pygit2.Repository(repository).head.target) == tip, "as fresh as its last run"
    refstone("project", repository)
    assert str(pygit2.Repository(repository).head.target) == older
