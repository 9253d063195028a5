"""Every acknowledged push is in the live log, as stock pyarrow reads it beside the running server:
who, when, which ref, from, to, and in which transaction."""

import datetime

import pyarrow as pa
import pytest

import refstone_audit
from harness import live_log
from readers import READERS, transactions


def now():
    return datetime.datetime.now(datetime.UTC)


class Pushes:
    """Pushes with git, and keeps what each must have left in the log."""

    def __init__(self, server, work):
        self.work = work
        self.url = server.url_of("project.git")
        self.repository = server.data / "project.git"
        self.acknowledged = []  # (earliest, latest, {(actor, ref, old, new)})

    def push(self, actor, *arguments, moves):
        earliest = now()
        assert self.work.push(self.url, actor, *arguments), arguments
        moves = {(actor, ref, old, new) for ref, old, new in moves}
        self.acknowledged.append((earliest, now(), moves))


@pytest.fixture
def pushes(server, work):
    """Several actors create, update, delete, and move several refs at once."""
    one, two, three, four = work.commits
    main, topic, tag = "refs/heads/main", "refs/heads/topic", "refs/tags/v1"
    pushes = Pushes(server, work)
    pushes.push("alice", f"{one}:{main}", moves=[(main, None, one)])
    pushes.push("bob", f"{two}:{main}", moves=[(main, one, two)])
    pushes.push("Ça va", f"{two}:{topic}", moves=[(topic, None, two)])
    pushes.push("carol", "--atomic", f"{three}:{main}", f"{three}:{topic}", f"{one}:{tag}",
                moves=[(main, two, three), (topic, two, three), (tag, None, one)])
    pushes.push("alice", "--force", f"{one}:{topic}", moves=[(topic, three, one)])
    pushes.push("bob", "--atomic", f":{topic}", f":{tag}",
                moves=[(topic, one, None), (tag, one, None)])
    pushes.push("dave", f"{four}:{main}", moves=[(main, three, four)])
    return pushes


# Break: any column written from another one; a push of three refs in three transactions; an
# acknowledgement before the row is published.
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_every_acknowledged_push_is_found(pushes, reader):
    table = reader(live_log(pushes.repository))
    table.validate(full=True)
    found = transactions(table)
    assert [seq for seq, _ in found] == list(range(1, len(pushes.acknowledged) + 1))
    for (earliest, latest, moves), (_, rows) in zip(pushes.acknowledged, found, strict=True):
        assert {move_of(row) for row in rows} == moves
        [at] = {row["at"] for row in rows}
        assert earliest <= at <= latest


def move_of(row):
    def hexed(oid):
        return None if oid is None else oid.hex()

    return row["actor"], row["refname"], hexed(row["old_oid"]), hexed(row["new_oid"])


def test_the_columns_are_plain(pushes):
    schema = READERS[0](live_log(pushes.repository)).schema
    assert [(field.name, str(field.type), field.nullable) for field in schema] == [
        ("seq", "uint64", False),
        ("at", "timestamp[us, tz=UTC]", False),
        ("actor", "string", False),
        ("refname", "string", False),
        ("old_oid", "fixed_size_binary[20]", True),
        ("new_oid", "fixed_size_binary[20]", True),
        ("symref", "string", True),
        ("message", "string", True),
    ]
    assert schema.metadata[b"refstone.format"] == b"1"
    assert schema.metadata[b"refstone.object_format"] == b"sha1"


def test_a_push_is_seen_as_soon_as_it_is_acknowledged(pushes):
    *_, four = pushes.work.commits
    for number in range(10):
        ref = f"refs/heads/at-once-{number}"
        pushes.push("erin", f"{four}:{ref}", moves=[(ref, None, four)])
        table = refstone_audit.read(pushes.repository)
        assert table["refname"][-1].as_py() == ref


def test_a_refused_push_is_in_no_row(pushes):
    one, *_ = pushes.work.commits
    before = READERS[0](live_log(pushes.repository))
    assert not pushes.work.push(pushes.url, "mallory", f"{one}:refs/heads/main")
    assert not pushes.work.push(pushes.url, "mallory", "--atomic", f"{one}:refs/heads/x",
                                f"{one}:refs/heads/main")
    assert not pushes.work.push(pushes.url, "mallory", f"{one}:refs/heads/main/below")
    assert READERS[0](live_log(pushes.repository)).equals(before)


def test_the_log_answers_questions(pushes):
    """What an auditor asks runs on the table as it is: group, sort, filter, join."""
    table = refstone_audit.read(pushes.repository)
    counts = table.group_by("actor").aggregate([("seq", "count_distinct")]).sort_by("actor")
    assert counts.to_pydict() == {
        "actor": ["alice", "bob", "carol", "dave", "Ça va"],
        "seq_count_distinct": [2, 2, 1, 1, 1],
    }
    deleted = table.filter(pa.compute.field("new_oid").is_null())
    assert sorted(deleted["refname"].to_pylist()) == ["refs/heads/topic", "refs/tags/v1"]
    latest = table.group_by("refname").aggregate([("seq", "max")])
    joined = latest.join(table, ["refname", "seq_max"], ["refname", "seq"])
    assert joined.num_rows == 3
