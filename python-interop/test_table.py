"""A table is an Arrow stream up to its moves: stock pyarrow reads its rows, and a few lines its moves."""

import struct
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
    assert rows["HEAD"]["symref"] == "refs/heads/a"
    assert rows["HEAD"]["new_oid"] is None
    gone = rows["refs/heads/a/b"]
    assert gone["new_oid"] is None and gone["symref"] is None
    ends = [row["moves_end"] for row in rows.values()]
    assert ends == sorted(ends)


class Fields:
    """Bytes that are read from their start, as docs/format.md has them."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        self.at += count
        assert self.at <= len(self.data)
        return self.data[self.at - count : self.at]

    def number(self):
        number, shift = 0, 0
        while True:
            (byte,) = self.take(1)
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7

    def text(self):
        return self.take(self.number())


def moves_section(data):
    counts = struct.unpack("<6Q6I", data[-84:-12])
    _, _, history_rows, oid_entries, moves_len, _, pages, slots, directory_len = counts[:9]
    sums_len = 4 * -(-moves_len // 4096)
    end = len(data) - 84 - directory_len - sums_len - 8 * pages * slots - 12 * oid_entries
    return history_rows, data[end - moves_len : end]


def moves_of(row, section, last):
    """The moves of a row, newest first: (seq, at, actor, old, new, symref, message)."""
    fields, moves = Fields(section), []
    newer = (row["seq"], row["at"], b"", row["new_oid"], None)
    while fields.at < len(section):
        length = fields.number()
        end = fields.at + length
        while fields.at < end:
            flags = fields.take(1)[0]
            seq = newer[0] - fields.number()
            at = newer[1] - fields.number()
            actor = newer[2] if flags & 8 else fields.text()
            new = newer[3] if flags & 1 else fields.take(20) if flags & 2 else None
            old = fields.take(20) if flags & 4 else None
            symref = fields.text() if flags & 64 else None
            message = newer[4] if flags & 16 else fields.text() if flags & 32 else None
            moves.append((seq, at, actor, old, new, symref, message))
            newer = (seq, at, actor, old, message)
        assert Fields(section[fields.at : fields.at + 1]).number() == length, "shorter than 128"
        fields.at += 1
        newer = (*last, b"", None, None)
    return moves


def test_the_moves_are_where_the_format_says():
    data = GOLDEN.read_bytes()
    with pa.ipc.open_stream(data) as stream:
        table = stream.read_all()
        last = [int(stream.schema.metadata[b"refstone.last_" + key]) for key in (b"seq", b"at")]
    table = table.set_column(4, "at", table["at"].cast(pa.int64()))
    count, section = moves_section(data)
    start, moves = 0, {}
    for row in table.to_pylist():
        moves[row["refname"]] = moves_of(row, section[start : row["moves_end"]], last)
        start = row["moves_end"]
    assert start == len(section)
    assert sum(map(len, moves.values())) == count == 11
    assert moves["refs/heads/a"] == [
        (6, 60, b"bob\\\xff", b"\0" * 20, b"\2" * 20, None, b"why 0"),
        (1, 10, b"actor-1", b"\1" * 20, b"\1" * 20, None, None),
    ]
    assert [move[0] for move in moves["refs/heads/a/b"]] == [5, 2]
    assert moves["HEAD"] == [(3, 30, b"bob\\\xff", None, None, b"refs/heads/a", b"why 0")]
