import shutil
import tempfile

import pytest

import harness


@pytest.fixture(scope="session", autouse=True)
def built():
    missing = "is not built: run `cargo build --workspace` first, as ./test.sh does"
    assert harness.REFSTONE.is_file(), f"{harness.REFSTONE} {missing}"


@pytest.fixture
def scratch():
    """A directory on the disk of the build, where a sync means something; /tmp may be memory."""
    parent = harness.ROOT / "target" / "python-interop"
    parent.mkdir(parents=True, exist_ok=True)
    directory = tempfile.mkdtemp(dir=parent)
    yield harness.Path(directory)
    shutil.rmtree(directory)


@pytest.fixture
def server(scratch):
    with harness.Server(scratch / "data") as server:
        yield server


@pytest.fixture
def work(scratch):
    return harness.Work(scratch / "work")
