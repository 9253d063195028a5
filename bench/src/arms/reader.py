"""Reads a log with a stock library: reader.py LIBRARY FILE. Prints one JSON object."""

import importlib.util
import json
import sys
import time


def peak_memory_mb():
    """Of this process alone; `getrusage` also counts the parent it was forked from."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024



library, path = sys.argv[1:]
if importlib.util.find_spec(library) is None:
    print(json.dumps({"absent": f"{library} cannot be imported"}))
    sys.exit()
module = __import__(library)
start_memory = peak_memory_mb()
start = time.perf_counter()
if library == "pyarrow":
    import pyarrow.compute

    table = module.ipc.open_stream(module.memory_map(path)).read_all()
    rows, total = table.num_rows, pyarrow.compute.sum(table["seq"]).as_py()
elif library == "polars":
    frame = module.read_ipc_stream(path)
    rows, total = frame.height, frame["seq"].sum()
else:
    import pyarrow

    log = pyarrow.ipc.open_stream(pyarrow.memory_map(path))
    query = "select count(*), sum(seq) from log"
    [(rows, total)] = module.connect().execute(query).fetchall()
print(
    json.dumps(
        {
            "seconds": time.perf_counter() - start,
            "memory_mb": peak_memory_mb(),
            "memory_before_mb": start_memory,
            "rows": rows,
            "sum": int(total),
            "version": module.__version__,
        }
    )
)
