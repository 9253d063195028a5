"""What the tests drive: the built command, a server, real git, and pushes by hand."""

import base64
import hashlib
import http.client
import json
import os
import signal
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parent.parent
REFSTONE = Path(os.environ.get("REFSTONE_BIN", ROOT / "target" / "debug" / "refstone"))

GIT_ENVIRONMENT = {
    **os.environ,
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_AUTHOR_NAME": "t",
    "GIT_AUTHOR_EMAIL": "t@example.org",
    "GIT_COMMITTER_NAME": "t",
    "GIT_COMMITTER_EMAIL": "t@example.org",
    "LC_ALL": "C",
}

ZERO = "0" * 40


def run(*command, **options):
    """Runs a command that must succeed; what it said stands in the failure if it does not."""
    done = subprocess.run(command, capture_output=True, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}: {done.stderr}")
    return done


def git(directory, *arguments):
    """Runs git, and returns what it prints."""
    return run("git", *arguments, cwd=directory, env=GIT_ENVIRONMENT, text=True,
               stdin=subprocess.DEVNULL).stdout.strip()


def refstone(*arguments, **options):
    return run(REFSTONE, *arguments, **options)


def live_log(repository):
    return Path(repository) / "refstone" / "refs.arrow"


class Work:
    """A working tree with a few commits."""

    def __init__(self, directory, commits=4):
        self.directory = directory
        git(None, "init", "-q", "-b", "main", str(directory))
        self.commits = [self._commit(f"commit {number}") for number in range(commits)]

    def _commit(self, message):
        git(self.directory, "commit", "-q", "--allow-empty", "-m", message)
        return git(self.directory, "rev-parse", "HEAD")

    def push(self, url, actor, *arguments):
        """Pushes as somebody; returns whether all of it was acknowledged."""
        header = f"http.extraHeader=Authorization: Basic {credentials(actor)}"
        push = ["git", "-c", header, "push", "--porcelain", url, *arguments]
        return subprocess.run(push, cwd=self.directory, env=GIT_ENVIRONMENT,
                              stdin=subprocess.DEVNULL, capture_output=True).returncode == 0


def credentials(actor):
    return base64.b64encode(f"{actor}:any".encode()).decode()


class Server:
    """`refstone serve` on a free port of loopback."""

    def __init__(self, data):
        self.data = Path(data)
        self.process = subprocess.Popen(
            [REFSTONE, "serve", str(data), "--listen", "127.0.0.1:0", "--json", "--quiet"],
            stdout=subprocess.PIPE, text=True)
        self.url = json.loads(self.process.stdout.readline())["url"]

    def url_of(self, name):
        return self.url + name

    def connect(self, name):
        return Pusher(self.url_of(name))

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(timeout=30) == 0

    def kill(self):
        self.process.kill()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.kill()
        self.process.stdout.close()


def _pkt(line):
    return b"%04x" % (len(line) + 4) + line


EMPTY_PACK = b"PACK" + (2).to_bytes(4, "big") + (0).to_bytes(4, "big")
EMPTY_PACK += hashlib.sha1(EMPTY_PACK).digest()


class Pusher:
    """Pushes what the server has the objects of: the bytes of git's protocol, by hand.

    A git client takes longer to start than the server takes to answer, and a test of what happens
    between two transactions wants many of them.
    """

    def __init__(self, url):
        parts = urlsplit(url)
        self.path = parts.path
        self.connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)

    def push(self, actor, commands):
        """Pushes `(old, new, ref)` commands, all or none; returns whether that was acknowledged."""
        lines = [f"{old} {new} {ref}".encode() for old, new, ref in commands]
        lines[0] += b"\0 report-status atomic object-format=sha1 agent=test"
        body = b"".join(map(_pkt, lines)) + b"0000"
        if any(new != ZERO for _, new, _ in commands):
            body += EMPTY_PACK
        self.connection.request("POST", self.path + "/git-receive-pack", body, {
            "Content-Type": "application/x-git-receive-pack-request",
            "Authorization": f"Basic {credentials(actor)}",
        })
        response = self.connection.getresponse()
        report = response.read()
        acknowledged = report.startswith(_pkt(b"unpack ok\n"))
        moved = [_pkt(f"ok {ref}\n".encode()) in report for _, _, ref in commands]
        return acknowledged and all(moved)

    def close(self):
        self.connection.close()


class Writer:
    """`refstone update-ref --stdin`: one durable transaction after the other, each answered."""

    def __init__(self, repository, *options):
        self.process = subprocess.Popen(
            [REFSTONE, "update-ref", str(repository), "--stdin", *options],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def commit(self, lines):
        self.process.stdin.write("\n".join(["start", *lines, "commit\n"]).encode())
        self.process.stdin.flush()
        assert self.process.stdout.readline() == b"start: ok\n"
        assert self.process.stdout.readline() == b"commit: ok\n"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        assert self.process.wait() == 0
