"""Reads who moved which git reference, when, from where and to where.

A refstone log is an Arrow IPC stream, so stock pyarrow opens it, also while a server writes it.
All that a reader sees is durable, and no transaction is seen in part. pyarrow checks no checksums:
`refstone verify` does, if the bytes themselves are in doubt.

    import refstone_audit
    table = refstone_audit.read("project.git")
    for move in refstone_audit.moves(table, "refs/heads/main"):
        print(move.seq, move.at, move.actor, move.old, move.new)

Or from a shell: python refstone_audit.py project.git [refs/heads/main]

This needs pyarrow and nothing else. Take from it what you need: `docs/format.md` describes the
columns, and everything here is a few lines over them.
"""

import argparse
import os
import re
import sys
from collections import namedtuple
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

Move = namedtuple("Move", "seq at actor ref old new message")
Move.__doc__ = """One row: `actor`, `ref` and `message` as the columns hold them, `old` and `new` in
hex, or None where there is no object. A symbolic reference has `ref: <target>` as `new`."""


def read(repository):
    """All moves of a repository, oldest first, as one pyarrow.Table.

    `repository` is `<name>.git`, or the `refstone` directory in it. A ValueError tells which
    transactions are missing, unless a repair recorded them as lost.
    """
    directory = _log_directory(repository)
    # The live file comes first. What is sealed after that leaves it for history, and is found
    # there; in the other order it would be found nowhere.
    live = _read_live(directory / "refs.arrow")
    while True:
        try:
            history = [(first, last, _read_history(path, live.schema))
                       for first, last, path in _history_files(directory)]
            return _join(history, live)
        except FileNotFoundError:
            pass  # Two history files were merged into one meanwhile: list them again.


def moves(table, ref=None):
    """The rows of a table as `Move`s, of one reference or of all.

    `ref` is a name as the column holds it, so a byte that is not UTF-8 is `\\xNN` in it.
    """
    for batch in table.to_batches(max_chunksize=10_000):
        for row in batch.to_pylist():
            if ref is None or row["refname"] == ref:
                new = f"ref: {row['symref']}" if row["symref"] is not None else _hex(row["new_oid"])
                yield Move(row["seq"], row["at"], row["actor"], row["refname"],
                           _hex(row["old_oid"]), new, row["message"])


def unescape(text):
    """The raw bytes behind a text column: `\\xNN` is a byte, and `\\\\` a backslash."""
    return re.sub(rb"\\(?:\\|x([0-9a-f]{2}))",
                  lambda match: bytes.fromhex(match[1].decode()) if match[1] else b"\\",
                  text.encode())


def _log_directory(repository):
    below = Path(repository) / "refstone"
    return below if below.is_dir() else Path(repository)


def _read_live(path):
    with pa.ipc.open_stream(pa.OSFile(os.fspath(path))) as stream:
        # A transaction is a batch, so there may be very many small ones.
        return stream.read_all().combine_chunks()


def _history_files(directory):
    """The history files as (first, last, path), without those that lie inside another.

    A file that lies inside another has been merged into it, and is about to be removed.
    """
    named = re.compile(r"(\d+)-(\d+)\.parquet")
    names = os.listdir(directory / "history") if (directory / "history").is_dir() else []
    ranges = [(int(match[1]), int(match[2]), directory / "history" / match[0])
              for match in map(named.fullmatch, names) if match]
    reached = 0
    # Of two that start together the longer one comes first.
    for first, last, path in sorted(ranges, key=lambda item: (item[0], -item[1])):
        if last > reached:
            reached = last
            yield first, last, path


def _read_history(path, schema):
    import pyarrow.parquet as parquet  # Only repositories with history need it.

    table = parquet.read_table(path)
    return _with_old_oids(table).select(schema.names).cast(schema)


def _with_old_oids(table):
    """The table with its old object ids in place.

    A derived file leaves out an `old_oid` that is the `new_oid` of the row `old_back` rows above,
    which is the move of the same reference before.
    """
    if "old_back" not in table.column_names:
        return table
    back = table["old_back"].combine_chunks().cast(pa.int64())
    above = pc.subtract(pa.array(range(len(table)), pa.int64()), back)
    derived = table["new_oid"].combine_chunks().take(above)  # Null where `old_back` is.
    old = pc.coalesce(table["old_oid"].combine_chunks(), derived)
    return table.set_column(table.column_names.index("old_oid"), "old_oid", old)


def _join(history, live):
    """One table of history and what the live log has beyond it, of which nothing is missing."""
    metadata = live.schema.metadata
    sealed = int(metadata[b"refstone.sealed_seq"])
    reached = max((last for _, last, _ in history), default=0)
    # Sealed rows may still be in the live file, and history may be newer than it.
    rest = live.filter(pc.field("seq") > max(reached, sealed))
    table = pa.concat_tables([*(table for _, _, table in history), rest])
    lost = [tuple(map(int, gap.split("-")))
            for gap in metadata[b"refstone.gaps"].decode().split(",") if gap]
    missing = list(_without(_holes(table["seq"], sealed), lost))
    if missing:
        ranges = ", ".join(f"{first} to {last}" for first, last in missing)
        raise ValueError(f"the transactions {ranges} are missing: no file has them, and no repair has "
                         "recorded them as lost; restore the files of history/ that they were in")
    return table.replace_schema_metadata(metadata)


def _holes(seqs, sealed):
    """The ranges of sequences, up to the newest sealed one, that no row has."""
    seqs = seqs.combine_chunks().cast(pa.int64())
    behind = pa.concat_arrays([pa.array([0], pa.int64()), seqs])
    newest = max(sealed, behind[-1].as_py())
    ahead = pa.concat_arrays([seqs, pa.array([newest + 1], pa.int64())])
    steps = pc.subtract(ahead, behind)
    if pc.any(pc.less(steps, 0)).as_py():
        raise ValueError("some transactions come twice: files of history/ overlap")
    jumps = pc.greater(steps, 1)
    return zip(pc.add(behind.filter(jumps), 1).to_pylist(),
               pc.subtract(ahead.filter(jumps), 1).to_pylist())


def _without(ranges, lost):
    """What of the ranges is in none of the gaps that a repair recorded, which are sorted."""
    for first, last in ranges:
        for gap_first, gap_last in lost:
            if first <= gap_last and gap_first <= last:
                if first < gap_first:
                    yield first, gap_first - 1
                first = gap_last + 1
        if first <= last:
            yield first, last


def _hex(oid):
    return None if oid is None else oid.hex()


def _printable(text):
    """The text without what would drive a terminal: anybody may choose the name of a branch."""
    return "".join(c if c.isprintable() else "".join(f"\\x{byte:02x}" for byte in c.encode())
                   for c in text)


def main():
    parser = argparse.ArgumentParser(
        description="Print who moved a reference, when, which, from where, to where, and in which "
                    "transaction; oldest first.")
    parser.add_argument("repository", help="<name>.git")
    parser.add_argument("ref", nargs="?", help="only this reference, such as refs/heads/main")
    arguments = parser.parse_args()
    try:
        table = read(arguments.repository)
    except (OSError, ValueError) as error:
        # pyarrow's own complaints about bytes are of both kinds, and have no number.
        damaged = isinstance(error, pa.ArrowException) or getattr(error, "errno", 0) is None
        hint = "; `refstone verify` tells what is damaged" if damaged else ""
        sys.exit(f"error: {error}{hint}")
    move = None
    for move in moves(table, arguments.ref):
        print(_printable(move.actor), move.at.isoformat(), _printable(move.ref), move.old or "-",
              _printable(move.new or "-"), move.seq, sep="\t")
    if move is None:
        of = f" of {_printable(arguments.ref)}" if arguments.ref else ""
        print(f"note: there is no move{of} in this log", file=sys.stderr)


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        sys.exit(0)  # The reader has seen enough.
