"""Whatever a transaction holds, stock pyarrow finds it whole: `validate(full=True)` has no
complaint, and every value is the one that was written."""

import random

import pyarrow.compute as pc
import pytest

import refstone_audit
from harness import live_log, refstone
from readers import READERS, transactions

WIDTHS = {"sha1": 20, "sha256": 32}

# Nothing that git forbids in a name, and much that it does not.
NAME_PARTS = [b"a", b"topic-1234", b"\xff", b"\xc3\xa4", b"\xc3", b"\xf0\x9f\xa6\x80", b"A.LOCK",
              b"x" * 200, b"\xed\xa0\x80", b"'\"", b"xff", b"$(rm)", b"\xe2\x80\xae"]
TEXT_PARTS = [b"alice", b" ", b"\\", b"\\xff", b"\xff", b"\n", b"\t", b"\x1b[2J", b"\xc3\xa4",
              b"\xc2", b"<a@b>", b"\xf0\x9f\xa6\x80", b"long " * 100]


class Script:
    """Random transactions, with the rows that each must leave."""

    def __init__(self, seed, object_format):
        self.random = random.Random(seed)
        self.width = WIDTHS[object_format]
        self.state = {}  # name -> ("oid", bytes) or ("symref", bytes)

    def transaction(self):
        """The commands of one transaction, its actor and message, and its rows."""
        actor, message = self.text(), self.random.choice([None, self.text()])
        commands, rows, touched = [], [], set()
        for _ in range(self.random.choice([1, 1, 1, 2, 3, 10, 64])):
            name = self.name()
            if name in touched or self.conflicts(name, touched):
                continue
            touched.add(name)
            old = self.state.get(name)
            command, new = self.move(name, old)
            commands.append(b"option no-deref\0" + command)
            rows.append((actor, name, old, new, message))
        for _, name, _, new, _ in rows:
            if new is None:
                del self.state[name]
            else:
                self.state[name] = new
        return b"".join(commands), actor, message, rows

    def move(self, name, old):
        if old is not None and self.random.random() < 0.2:
            return b"delete %s\0\0" % name, None
        if self.random.random() < 0.2:
            # A target that never exists, so that no edit reaches another's name through it.
            target = b"refs/nowhere/" + self.joined(NAME_PARTS, 3)
            if old != ("symref", target):
                return b"symref-update %s\0%s\0\0\0" % (name, target), ("symref", target)
        oid = self.random.randbytes(self.width)
        return b"update %s\0%s\0\0" % (name, oid.hex().encode()), ("oid", oid)

    def name(self):
        known = sorted(self.state)
        if known and self.random.random() < 0.5:
            return self.random.choice(known)
        prefix = self.random.choice([b"refs/heads/", b"refs/tags/", b"refs/heads/d/"])
        return prefix + self.joined(NAME_PARTS, 4)

    def conflicts(self, name, touched):
        """Whether one of the names would be a directory of the other."""
        return any(other.startswith(name + b"/") or name.startswith(other + b"/")
                   for other in [*self.state, *touched])

    def text(self):
        return self.joined(TEXT_PARTS, 4)

    def joined(self, parts, most):
        return b"".join(self.random.choices(parts, k=self.random.randint(1, most)))


def raw_row(row):
    """A row with its texts as the bytes that were written."""
    def raw(text):
        return None if text is None else refstone_audit.unescape(text)

    def target(oid, symref):
        if symref is not None:
            return ("symref", raw(symref))
        return None if oid is None else ("oid", oid)

    return (raw(row["actor"]), raw(row["refname"]), row["old_oid"],
            target(row["new_oid"], row["symref"]), raw(row["message"]))


def expected_row(row):
    actor, name, old, new, message = row
    # The log holds the old object only; where a symbolic ref pointed is in the row before.
    old_oid = old[1] if old is not None and old[0] == "oid" else None
    return actor, name, old_oid, new, message


# Break: escaping only what is no UTF-8 and not the backslash; an empty validity buffer on a column
# with nulls (pyarrow then reads wrong values, and only `validate` complains); padding of a row left
# out; a column written at the offset of another.
@pytest.mark.parametrize("object_format", WIDTHS)
@pytest.mark.parametrize("seed", range(3))
def test_what_was_written_is_what_pyarrow_reads(scratch, seed, object_format):
    repository = scratch / "r.git"
    refstone("init", str(repository), "--object-format", object_format)
    script = Script(seed, object_format)
    written = []
    while len(written) < 40:
        commands, actor, message, rows = script.transaction()
        if not rows:
            continue
        why = [] if message is None else [b"-m", message]
        who = [b"--actor=" + actor]
        refstone("update-ref", str(repository), "--stdin", "-z", *who, *why, input=commands)
        written.append([expected_row(row) for row in rows])
    for reader in READERS:
        table = reader(live_log(repository))
        table.validate(full=True)
        found = transactions(table)
        assert [seq for seq, _ in found] == list(range(1, len(written) + 1))
        assert [[raw_row(row) for row in rows] for _, rows in found] == written
    use(table)


def use(table):
    """Engines walk the buffers in other ways than `validate` does."""
    combined = table.combine_chunks()
    combined.validate(full=True)
    by_name = combined.sort_by([("refname", "descending"), ("seq", "ascending")])
    assert by_name.num_rows == table.num_rows
    per_ref = table.group_by("refname").aggregate([("old_oid", "count"), ("seq", "max")])
    assert pc.sum(per_ref["old_oid_count"]).as_py() == table.num_rows - table["old_oid"].null_count
    joined = per_ref.join(table, ["refname", "seq_max"], ["refname", "seq"])
    assert joined.num_rows == per_ref.num_rows
    for start in range(0, table.num_rows, 7):
        part = table.slice(start, 5)
        part.validate(full=True)
        assert part.to_pylist() == combined.slice(start, 5).to_pylist()


@pytest.mark.parametrize("raw", [b"plain", b"\\", rb"\xff", b"\xff", b"a\\\xff\\\\", "ä🦀".encode(),
                                 b"\\x", b"\\\\xff"])
def test_escaping_is_reversible(scratch, raw):
    repository = scratch / "r.git"
    refstone("init", str(repository))
    command = b"create refs/heads/a %s\n" % (b"1" * 40)
    refstone("update-ref", str(repository), "--stdin", b"--actor=" + raw, "-m", raw, input=command)
    [row] = refstone_audit.read(repository).to_pylist()
    assert refstone_audit.unescape(row["actor"]) == refstone_audit.unescape(row["message"]) == raw
