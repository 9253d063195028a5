"""A server that is killed between two instructions loses nothing that it acknowledged, and leaves
no half of a transaction."""

import http.client
import random
import threading
import time

import pytest

import refstone_audit
from harness import ZERO, Server, git, live_log
from readers import READERS

CLIENTS = 8
REFS = "abc"


class Client(threading.Thread):
    """Pushes until the server is gone. Each push moves three refs together."""

    def __init__(self, server, number, commits, state):
        super().__init__()
        self.pusher = server.connect("r.git")
        self.number = number
        self.commits = commits
        self.old = state.get(f"refs/heads/{number}/a", ZERO)
        self.acknowledged = []
        # What was sent last; nobody knows whether it happened.
        self.unanswered = None
        self.refused = None

    def run(self):
        try:
            for push in range(1_000_000):
                new = self.commits[(self.commits.index(self.old) + 1) % len(self.commits)
                                   if self.old != ZERO else 0]
                commands = [(self.old, new, f"refs/heads/{self.number}/{side}") for side in REFS]
                self.unanswered = (self.old, new)
                if not self.pusher.push(f"client {self.number}", commands):
                    self.refused = self.unanswered
                    return
                self.acknowledged.append(self.unanswered)
                self.unanswered = None
                self.old = new
        except (OSError, http.client.HTTPException):
            pass  # The server was killed.
        finally:
            self.pusher.close()


def pushes_in(table):
    """The pushes of each client, as `(old, new)`, once it is clear that each is whole.

    Sequences must rise by one, and all three refs of a push must have moved together.
    """
    by_seq = {}
    for move in refstone_audit.moves(table):
        by_seq.setdefault(move.seq, []).append(move)
    assert list(by_seq) == list(range(1, len(by_seq) + 1))
    pushes = {}
    for moved in list(by_seq.values())[1:]:
        number = int(moved[0].actor.removeprefix("client "))
        push = (moved[0].old, moved[0].new)
        assert {(move.actor, move.ref, move.old, move.new) for move in moved} == {
            (f"client {number}", f"refs/heads/{number}/{side}", *push) for side in REFS}
        pushes.setdefault(number, []).append((push[0] or ZERO, push[1]))
    return pushes


def state_of(table):
    state = {}
    for move in refstone_audit.moves(table):
        if move.new is None:
            del state[move.ref]
        else:
            state[move.ref] = move.new
    return state


# Breaks: answering before the transaction is written and published; a transaction for each ref of a
# push; a recovery that takes whole transactions for torn. (An answer before the sync is not seen
# here: the kernel outlives the process. The log's own tests cut the power.)
@pytest.mark.parametrize("seed", range(3))
def test_every_acknowledged_push_survives_and_no_half_one_does(scratch, work, seed):
    chance = random.Random(seed)
    data = scratch / "data"
    with Server(data) as server:
        assert work.push(server.url_of("r.git"), "founder", "HEAD:refs/heads/main")
        server.stop()
    expected = {number: [] for number in range(CLIENTS)}
    for _ in range(4):
        survive_one_kill(data, work, expected, chance.randint(10, 80), chance.uniform(0, 0.01))


def survive_one_kill(data, work, expected, pushes, seconds):
    """Adds to `expected` what each client was acknowledged, and what turned out to be there."""
    repository = data / "r.git"
    with Server(data) as server:
        state = state_of(refstone_audit.read(repository))
        clients = [Client(server, number, work.commits, state) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        while sum(len(client.acknowledged) for client in clients) < pushes:
            assert any(client.is_alive() for client in clients)
            time.sleep(0.001)
        time.sleep(seconds)
        server.kill()
        for client in clients:
            client.join()
            assert client.refused is None
            expected[client.number] += client.acknowledged

    # A stock reader that comes before any recovery.
    for reader in READERS:
        check(pushes_in(reader(live_log(repository))), expected, clients)

    with Server(data) as server:
        listed = git(None, "ls-remote", server.url_of("r.git"), "refs/*")
        table = refstone_audit.read(repository)
        found = pushes_in(table)
        check(found, expected, clients)
        listed = dict(reversed(line.split("\t")) for line in listed.splitlines())
        assert listed == state_of(table)
        server.stop()
    expected.update(found)


def check(found, expected, clients):
    """All that was acknowledged is there, and beyond it at most what was not answered."""
    for client in clients:
        pushes, certain = found.get(client.number, []), expected[client.number]
        assert pushes[:len(certain)] == certain
        assert pushes[len(certain):] in ([], [client.unanswered])
