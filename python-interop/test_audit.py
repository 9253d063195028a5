"""The auditor's few lines: live log and history as one table, and the command."""

import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

import refstone_audit
from harness import ROOT, Writer, live_log, refstone


def commit(repository, seq, *options):
    command = f"update refs/heads/a {seq:040x}\n".encode()
    refstone("update-ref", str(repository), "--stdin", *options, input=command)


@pytest.fixture
def repository(scratch):
    """A repository of nine transactions, all of them in the live log."""
    repository = scratch / "r.git"
    refstone("init", str(repository))
    with Writer(repository, "--actor", "alice") as writer:
        for seq in range(1, 10):
            writer.commit([f"update refs/heads/a {seq:040x}"])
    return repository


def seal(repository, *ranges, sealed=None, gaps="", live_from=None, derived=False):
    """Gives the repository history files of these ranges, as a compaction would leave it."""
    table = refstone_audit.read(repository)
    (repository / "refstone" / "history").mkdir()
    for first, last in ranges:
        write_history(repository, table, first, last, derived)
    metadata = dict(table.schema.metadata)
    sealed = sealed or max(last for _, last in ranges)
    metadata[b"refstone.sealed_seq"] = str(sealed).encode()
    metadata[b"refstone.gaps"] = gaps.encode()
    rest = table.slice((live_from or 1) - 1).replace_schema_metadata(metadata)
    with pa.ipc.new_stream(str(live_log(repository)), rest.schema) as stream:
        stream.write_table(rest)


def write_history(repository, table, first, last, derived=False):
    path = repository / "refstone" / "history" / f"{first}-{last}.parquet"
    table = table.slice(first - 1, last - first + 1)
    parquet.write_table(derive(table) if derived else table, path)


def derive(table):
    """The derived form of a table of moves of one reference."""
    back = [None] + [1] * (len(table) - 1)
    old = [table["old_oid"][0].as_py()] + [None] * (len(table) - 1)
    old = pa.array(old, table.schema.field("old_oid").type)
    table = table.set_column(table.column_names.index("old_oid"), "old_oid", old)
    return table.append_column("old_back", pa.array(back, pa.uint32()))


def seqs(repository):
    return refstone_audit.read(repository)["seq"].to_pylist()


ALL = list(range(1, 10))


def test_without_history_the_live_log_is_all(repository):
    assert seqs(repository) == ALL


# Breaks: taking live rows that are sealed twice; taking a file that was merged into another.
@pytest.mark.parametrize("ranges", [
    [(1, 4)],
    [(1, 2), (3, 4)],
    [(1, 4), (1, 2), (3, 4)],  # The merged ones are not removed yet.
    [(1, 2), (3, 6), (5, 6), (3, 4)],
    [(1, 9)],
])
@pytest.mark.parametrize("live_from", [1, 3])
@pytest.mark.parametrize("derived", [False, True], ids=["full", "derived"])
def test_history_and_live_log_are_joined_once(repository, ranges, live_from, derived):
    before = refstone_audit.read(repository)
    seal(repository, *ranges, live_from=live_from, derived=derived)
    after = refstone_audit.read(repository)
    assert after["seq"].to_pylist() == ALL
    assert after.cast(before.schema).equals(before)


# Breaks: joining what does not join: rows would be missing without a word; not naming all that is
# missing; taking what is not in a recorded gap for lost; missing what was sealed last.
@pytest.mark.parametrize("ranges, sealed, gaps, missing", [
    ([(2, 6)], None, "", "1 to 1"),
    ([(1, 2), (4, 6)], None, "", "3 to 3"),
    ([(1, 1), (3, 3), (6, 6)], None, "", "2 to 2, 4 to 5"),
    ([(1, 2)], 6, "", "3 to 6"),
    ([(1, 2)], 9, "", "3 to 9"),
    ([(1, 1), (6, 6)], None, "3-3", "2 to 2, 4 to 5"),
    ([(1, 1), (6, 6)], None, "2-3,5-5", "4 to 4"),
    ([], 6, "1-2", "3 to 6"),
])
def test_what_is_missing_is_an_error_that_names_it(repository, ranges, sealed, gaps, missing):
    seal(repository, *ranges, sealed=sealed, gaps=gaps, live_from=7)
    with pytest.raises(ValueError, match=f"^the transactions {missing} are missing"):
        refstone_audit.read(repository)


# Break: two rows of one move. Neither file lies inside the other.
def test_files_that_overlap_are_an_error(repository):
    seal(repository, (1, 4), (3, 6), live_from=7)
    with pytest.raises(ValueError, match="come twice"):
        refstone_audit.read(repository)


# Breaks: a repaired log that stock readers do not read to its end; a gap that is not in the schema.
def test_a_repaired_log_is_read_across_its_gap(repository):
    live = live_log(repository)
    bytes_ = bytearray(live.read_bytes())
    # The fifth transaction's new object id, which is the sixth one's old one, too.
    bytes_[bytes_.index((5).to_bytes(20, "big")) + 19] ^= 0x40
    live.write_bytes(bytes_)
    refstone("repair", str(repository))
    assert seqs(repository) == [seq for seq in ALL if seq != 5]
    with pa.ipc.open_stream(str(live)) as stream:
        assert stream.schema.metadata[b"refstone.gaps"] == b"5-5"
    commit(repository, 10)
    assert seqs(repository)[-2:] == [9, 10]


def test_a_recorded_gap_joins(repository):
    seal(repository, (1, 2), (5, 6), gaps="3-4", live_from=7)
    assert seqs(repository) == [1, 2, 5, 6, 7, 8, 9]


# Break: giving up, or going on without the vanished file.
def test_history_that_is_merged_meanwhile_is_listed_again(repository, monkeypatch):
    table = refstone_audit.read(repository)
    seal(repository, (1, 2), (3, 4))
    read_history = refstone_audit._read_history
    directory = repository / "refstone" / "history"

    def merge_first(path, schema):
        if (directory / "1-2.parquet").exists():
            write_history(repository, table, 1, 4)
            (directory / "1-2.parquet").unlink()
            (directory / "3-4.parquet").unlink()
        return read_history(path, schema)

    monkeypatch.setattr(refstone_audit, "_read_history", merge_first)
    assert seqs(repository) == ALL


# Break: listing history before the live log is opened.
def test_rows_that_are_sealed_after_the_live_log_was_read_come_once(repository, monkeypatch):
    read_live = refstone_audit._read_live

    def seal_after(path):
        live = read_live(path)
        commit(repository, 10)
        monkeypatch.setattr(refstone_audit, "_read_live", read_live)
        seal(repository, (1, 10))
        return live

    monkeypatch.setattr(refstone_audit, "_read_live", seal_after)
    assert seqs(repository) == [*ALL, 10]


def audit(*arguments):
    command = [sys.executable, str(ROOT / "python-interop" / "refstone_audit.py"), *arguments]
    return subprocess.run(map(str, command), capture_output=True, text=True)


def test_the_command_prints_who_when_which_from_to_and_transaction(repository):
    lines = audit(repository).stdout.splitlines()
    assert len(lines) == 9
    who, when, *rest = lines[1].split("\t")
    assert who == "alice" and when.endswith("+00:00")
    assert rest == ["refs/heads/a", f"{1:040x}", f"{2:040x}", "2"]
    assert audit(repository, "refs/heads/b").stdout == ""
    assert audit(repository / "refstone", "refs/heads/a").stdout.splitlines() == lines


# Break: printing what anybody may choose. The sequence clears the screen of the auditor.
def test_the_command_prints_nothing_that_drives_a_terminal(repository):
    commit(repository, 10, "--actor", "ev\x1b[2Jil\u202e")
    line = audit(repository).stdout.splitlines()[-1]
    assert line.startswith("ev\\x1b[2Jil\\xe2\\x80\\xae\t")


# Break: a table without a word, or nothing at all.
def test_the_command_fails_loudly_where_a_file_is_missing(repository):
    for seq in (10, 13, 16):
        refstone("compact", str(repository))
        for more in range(seq, seq + 3):
            commit(repository, more)
    (repository / "refstone" / "history" / "10-12.parquet").unlink()
    told = audit(repository)
    assert (told.returncode, told.stdout) == (1, "")
    assert told.stderr.startswith("error: the transactions 10 to 12 are missing")


def test_the_command_says_that_nothing_matches(repository):
    told = audit(repository, "refs/heads/b")
    assert (told.returncode, told.stdout) == (0, "")
    assert told.stderr == "note: there is no move of refs/heads/b in this log\n"


def test_a_missing_log_is_told_in_one_line(scratch):
    told = audit(scratch / "none.git")
    assert told.returncode == 1
    assert told.stderr.startswith("error: ") and told.stderr.count("\n") == 1


def test_damage_is_told_with_what_tells_more(repository):
    live = live_log(repository)
    live.write_bytes(live.read_bytes()[:1500] + b"X" * 7000)
    told = audit(repository)
    assert told.returncode == 1 and told.stdout == ""
    assert told.stderr.endswith("; `refstone verify` tells what is damaged\n")


def test_a_deletion_and_a_symbolic_ref_are_told_apart(repository):
    commands = b"delete refs/heads/a\nsymref-create refs/heads/s refs/heads/t\n"
    refstone("update-ref", str(repository), "--stdin", input=commands)
    *_, deleted, symbolic = refstone_audit.moves(refstone_audit.read(repository))
    assert (deleted.ref, deleted.new) == ("refs/heads/a", None)
    assert (symbolic.ref, symbolic.old, symbolic.new) == ("refs/heads/s", None, "ref: refs/heads/t")
