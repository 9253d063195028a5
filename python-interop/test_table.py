"""A table of the refs' state is an Arrow stream up to its indexes; stock pyarrow reads its rows."""

from pathlib import Path

import pyarrow as pa

GOLDEN = Path(__file__).parent.parent / "tests" / "golden" / "table-1.arrow"


def test_pyarrow_reads_the_rows_of_a_table():
    with pa.OSFile(str(GOLDEN)) as file, pa.ipc.open_stream(file) as stream:
        metadata = stream.schema.metadata
        table = stream.read_all()
    table.validate(full=True)
    assert metadata[b"refstone.kind"] == b"table"
    assert metadata[b"refstone.last_seq"] == b"11"
    rows = {row["refname"]: row for row in table.to_pylist()}
    # Live refs sorted by raw bytes, then those that are gone.
    assert list(rows) == [
        "HEAD",
        "refs/heads/a",
        "refs/heads/a\\xff",
        "refs/heads/s",
        "refs/heads/z",
        "refs/heads/ä\u07f0",
        "refs/tags/x",
        "refs/heads/a/b",
        "refs/tags/y",
    ]
    assert rows["refs/heads/a"]["new_oid"] == b"\2" * 20
    assert rows["refs/heads/a"]["seq"] == 6
    assert rows["refs/heads/a"]["rows"] == [0, 5]
    assert rows["HEAD"]["symref"] == "refs/heads/a"
    assert rows["HEAD"]["new_oid"] is None
    gone = rows["refs/heads/a/b"]
    assert gone["new_oid"] is None and gone["symref"] is None
    assert gone["rows"] == [1, 4]
