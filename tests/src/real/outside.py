"""Reads logs with pyarrow, and answers each line with one line of JSON: the rows, or an error's text.

    all PATH    read with every reader; they must agree
    next PATH   read with the next reader
"""

import itertools
import json
import sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])
from readers import READERS  # noqa: E402


cycle = itertools.cycle(READERS)


def read_with_all(path):
    first, *others = [reader(path) for reader in READERS]
    for reader, table in zip(READERS[1:], others):
        if not table.equals(first):
            raise ValueError(f"{reader.__name__} reads otherwise than {READERS[0].__name__}")
    return first


def rows_of(table):
    return [[row["seq"], row["actor"], row["refname"], row["old_oid"].hex(), row["new_oid"].hex(),
             row["message"]] for row in table.to_pylist()]


for line in sys.stdin:
    how, path = line.split()
    try:
        table = read_with_all(Path(path)) if how == "all" else next(cycle)(Path(path))
        answer = rows_of(table)
    except Exception as error:  # Any of them is the finding.
        answer = f"{type(error).__name__}: {error}"
    print(json.dumps(answer), flush=True)
