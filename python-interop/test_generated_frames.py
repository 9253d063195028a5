"""The frames of the property tests, judged by pyarrow: every column, and `validate(full=True)`."""

import json
import os
import pathlib

import pyarrow as pa
import pytest

from harness import run

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARIES = pathlib.Path(os.environ.get("REFSTONE_BIN", ROOT / "target/debug/refstone")).parent
SEEDS = (1, 2)


def corpus(directory, seed, kind):
    """Logs of generated transactions, each beside the rows that must be found in it."""
    run(BINARIES / "frame_corpus", directory, str(seed), text=True)
    logs = sorted((directory / kind).iterdir())
    assert len(logs) == 24
    return logs


def as_json(row):
    """A row as the corpus describes it: the time is the log's own."""
    def readable(value):
        return value.hex() if isinstance(value, bytes) else value

    return {key: readable(value) for key, value in row.items() if key != "at"}


# Breaks: an empty validity buffer for a column with nulls (pyarrow reads wrong rows and only the
# full validation notices); offsets that do not start at zero.
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("source", [pa.OSFile, pa.memory_map], ids=["file", "mmap"])
@pytest.mark.parametrize("kind", ["refs", "secrets"])
def test_every_generated_frame_is_valid_and_holds_its_rows(tmp_path, kind, seed, source):
    for log in corpus(tmp_path, seed, kind):
        found = []
        with source(str(log / f"{kind}.arrow"), "r") as file, pa.ipc.open_stream(file) as stream:
            for batch in stream:
                batch.validate(full=True)
                found += [as_json(row) for row in batch.to_pylist()]
        # Not `splitlines`, which also splits at the separators that the rows hold.
        lines = (log / "rows.jsonl").read_text().split("\n")
        expected = [json.loads(line) for line in lines if line]
        assert found == expected, f"seed {seed}, {log.name}"
