"""While transactions are appended, every read sees whole ones, all that were acknowledged before it
began, and nothing that was never written."""

import mmap
import re
import subprocess
import threading
import time
from itertools import cycle, islice

import pyarrow as pa
import pytest

import refstone_audit
from harness import REFSTONE, ZERO, Writer, live_log, refstone
from readers import READERS, transactions


class Progress:
    """How far the writer is. `acknowledged` is looked at before a read of the log, `sent` after it.

    The writer goes on by ten transactions with each read, and the reader waits for most of them, so
    that every read is beside some.
    """

    def __init__(self):
        self.allowed = threading.Semaphore(0)
        self.sent = 0
        self.acknowledged = 0
        self.failure = None


def oid_of(seq, index):
    return f"{seq:032x}{index:08x}"


def moves_of(seq):
    """What transaction `seq` moves: one to five refs, each from where it was."""
    count = 1 + seq % 5
    return [(f"refs/heads/{index}", oid_of(seq, index)) for index in range(count)]


def write(repository, transactions_max, progress):
    try:
        with Writer(repository, "--actor", "writer", "-m", "one of many") as writer:
            for seq in range(1, transactions_max + 1):
                progress.allowed.acquire()
                progress.sent = seq
                writer.commit([f"update {ref} {oid}" for ref, oid in moves_of(seq)])
                progress.acknowledged = seq
    except BaseException as failure:
        progress.failure = failure
        raise


class Checker:
    """Checks what a read sees: whole transactions, in order, without a gap, as they were sent.

    What an earlier read saw must be there unchanged.
    """

    def __init__(self):
        self.state = {}
        self.reached = 0
        self.seen = None

    def check(self, table, acknowledged):
        """Returns how many transactions the table has."""
        known = 0 if self.seen is None else self.seen.num_rows
        # In one piece, since comparing thousands of small ones is what would take the time.
        whole = table.combine_chunks()
        assert known == 0 or whole.slice(0, known).equals(self.seen)
        for seq, rows in transactions(table.slice(known)):
            assert seq == self.reached + 1
            self.reached = seq
            self.check_rows(seq, rows)
        self.seen = whole
        assert self.reached >= acknowledged
        return self.reached

    def check_rows(self, seq, rows):
        moves = [(ref, self.state.get(ref), bytes.fromhex(oid)) for ref, oid in moves_of(seq)]
        assert [(row["refname"], row["old_oid"], row["new_oid"]) for row in rows] == moves
        assert {(row["actor"], row["symref"], row["message"]) for row in rows} == {
            ("writer", None, "one of many")}
        self.state.update((ref, new) for ref, _, new in moves)


# Break: acknowledging before publishing; a growing file without a marker at its end; publishing a
# frame before the one in front of it.
def test_every_read_sees_whole_transactions_and_all_acknowledged_ones(scratch):
    repository = scratch / "r.git"
    refstone("init", str(repository))
    progress = Progress()
    writer = threading.Thread(target=write, args=(repository, 2000, progress))
    writer.start()
    checker, lengths = Checker(), set()
    for begun, reader in enumerate(islice(cycle(READERS), 200)):
        while progress.acknowledged < 10 * begun - 5:
            assert writer.is_alive()
            time.sleep(0.0002)
        progress.allowed.release(10)
        acknowledged = progress.acknowledged
        reached = checker.check(reader(live_log(repository)), acknowledged)
        assert reached <= progress.sent
        lengths.add(reached)
    writer.join()
    assert progress.failure is None
    assert Checker().check(READERS[0](live_log(repository)), 2000) == 2000
    assert len(lengths) >= 50, "too few reads were beside the writer to tell anything"


# Break: storing the length word before the bytes behind it. What stands there for a few
# microseconds is a row of empty strings and zero ids, or half of a frame, and readers that come by
# accident hardly ever meet it.
def test_a_transaction_is_whole_in_the_instant_it_can_be_seen(scratch):
    repository = scratch / "r.git"
    refstone("init", str(repository))
    script = scratch / "script"
    with open(script, "w") as commands:
        for seq in range(1, 2001):
            edits = [f"update {ref} {oid}\n" for ref, oid in moves_of(seq)]
            commands.write("".join(["start\n", *edits, "commit\n"]))
    with open(live_log(repository), "rb") as log, open(script) as commands:
        options = ["--stdin", "--actor", "writer", "-m", "one of many"]
        writer = subprocess.Popen([REFSTONE, "update-ref", repository, *options],
                                  stdin=commands, stdout=subprocess.DEVNULL)
        stream = b"".join(frames_as_they_appear(log, 2000))
        assert writer.wait() == 0
    with pa.ipc.open_stream(stream) as batches:
        assert Checker().check(pa.Table.from_batches(batches), 2000) == 2000


# More than any frame of these transactions has, in bytes.
FRAME_MAX = 4096


def frames_as_they_appear(log, count):
    """The schema, and then each frame as it is when its length word is first seen.

    There is no pause between the look at the word and the copy of the frame.
    """
    def mapping():
        return mmap.mmap(log.fileno(), 0, prot=mmap.PROT_READ)

    view = mapping()
    slot = 8 + int.from_bytes(view[4:8], "little")
    yield view[:slot]
    for _ in range(count):
        if slot + FRAME_MAX > len(view):
            view = mapping()
        word = slice(slot + 4, slot + 8)
        deadline = time.monotonic() + 20
        while view[word] == bytes(4):
            assert time.monotonic() < deadline, "the writer has stopped"
        seen = view[slot:slot + FRAME_MAX]
        if len(seen) < FRAME_MAX:
            # The file has grown by the end of this frame. That it was whole at once is not known.
            seen = mapping()[slot:slot + FRAME_MAX]
        metadata, body = (int.from_bytes(part, "little") for part in (seen[4:8], seen[32:40]))
        assert body > 0, "the length word is there, and what it tells of is not"
        length = 8 + metadata + body
        yield seen[:length]
        slot += length


# Breaks: changing a frame that was published; shortening the file to its frames, which kills whoever
# has it mapped.
def test_a_mapping_that_the_log_has_outgrown_has_no_wrong_row(scratch):
    repository = scratch / "r.git"
    refstone("init", str(repository))
    path = live_log(repository)
    outgrown = 0
    with Writer(repository, "--actor", "writer", "-m", "one of many") as writer:
        seqs = iter(range(1, 1_000_000))

        def commit(count):
            for seq in islice(seqs, count):
                writer.commit([f"update {ref} {oid}" for ref, oid in moves_of(seq)])

        for committed in range(0, 600, 20):
            size = path.stat().st_size
            mapping = pa.memory_map(str(path))
            commit(20)
            if path.stat().st_size > size:
                outgrown += 1
            seen = rows_until_the_mapping_ends(mapping)
            assert Checker().check(seen, committed) <= committed + 20
    assert outgrown >= 2, "the file did not grow"


def rows_until_the_mapping_ends(mapping):
    """What can be read. The last frame may lie across the end of the mapping, and is an error."""
    batches = []
    with pa.ipc.open_stream(mapping) as stream:
        try:
            for batch in stream:
                batch.validate(full=True)
                batches.append(batch)
        except (pa.ArrowInvalid, OSError) as error:
            assert re.match(r"Expected to .*(read|got) \d+", str(error)), error
    return pa.Table.from_batches(batches, stream.schema)


class Client(threading.Thread):
    """Pushes one transaction after the other; each moves two refs of its own to one object."""

    def __init__(self, server, number, commits, pushes):
        super().__init__()
        self.pusher = server.connect("r.git")
        self.number = number
        self.commits = commits
        self.pushes = pushes
        self.acknowledged = 0
        self.failure = None

    def run(self):
        try:
            old = ZERO
            for push in range(self.pushes):
                new = self.commits[push % len(self.commits)]
                commands = [(old, new, f"refs/heads/{self.number}/{side}") for side in "ab"]
                assert self.pusher.push(f"client {self.number}", commands)
                self.acknowledged = push + 1
                old = new
        except BaseException as failure:
            self.failure = failure
            raise
        finally:
            self.pusher.close()


# Break: as above, and a group of several transactions that is published in parts of a frame, or
# before all of it is synced and acknowledged out of order.
def test_reads_beside_many_clients_see_each_push_whole(server, work):
    assert work.push(server.url_of("r.git"), "founder", "HEAD:refs/heads/main")
    repository = server.data / "r.git"
    clients = [Client(server, number, work.commits, 25) for number in range(8)]
    for client in clients:
        client.start()
    reads = 0
    while reads < 100 or any(client.is_alive() for client in clients):
        acknowledged = [client.acknowledged for client in clients]
        found = pushes_by_client(READERS[reads % len(READERS)](live_log(repository)))
        for client in clients:
            assert acknowledged[client.number] <= found.get(client.number, 0) <= client.pushes
        reads += 1
    for client in clients:
        client.join()
        assert client.failure is None
    table = refstone_audit.read(repository)
    assert pushes_by_client(table) == {client.number: client.pushes for client in clients}


def pushes_by_client(table):
    """Checks that both refs of a push moved together; returns how many pushes each client has."""
    by_seq = {}
    for move in refstone_audit.moves(table):
        by_seq.setdefault(move.seq, []).append(move)
    assert list(by_seq) == list(range(1, len(by_seq) + 1))
    state, count = {}, {}
    for moved in list(by_seq.values())[1:]:
        number = int(moved[0].actor.removeprefix("client "))
        assert {(move.actor, move.ref, move.old, move.new) for move in moved} == {
            (f"client {number}", f"refs/heads/{number}/{side}", state.get(number), moved[0].new)
            for side in "ab"}
        state[number] = moved[0].new
        count[number] = count.get(number, 0) + 1
    return count


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_a_log_without_transactions_is_an_empty_table(scratch, reader):
    refstone("init", str(scratch / "r.git"))
    table = reader(live_log(scratch / "r.git"))
    assert (table.num_rows, table.num_columns) == (0, 8)
