"""Every way in which stock pyarrow reads a stream from a file."""

import pyarrow as pa


def _batches(stream):
    batches = list(stream)
    for batch in batches:
        batch.validate(full=True)
    return pa.Table.from_batches(batches, stream.schema)


def iterate_file(path):
    with pa.ipc.open_stream(pa.OSFile(str(path))) as stream:
        return _batches(stream)


def _mapped(read):
    """Reads through a mapping, again if the file has grown since it was mapped.

    A mapping ends where the file ended when it was made. A transaction that is published later may
    lie across that end, and pyarrow says then that it is cut off. It is an error, and never a row.
    """
    def read_map(path):
        while True:
            size = path.stat().st_size
            try:
                with pa.ipc.open_stream(pa.memory_map(str(path))) as stream:
                    return read(stream)
            except (pa.ArrowInvalid, OSError):
                if path.stat().st_size == size:
                    raise

    return read_map


def iterate_map(path):
    return _mapped(_batches)(path)


def iterate_python_file(path):
    with open(path, "rb") as file, pa.ipc.open_stream(file) as stream:
        return _batches(stream)


def read_all_file(path):
    with pa.ipc.open_stream(pa.OSFile(str(path))) as stream:
        return stream.read_all()


def read_all_map(path):
    return _mapped(lambda stream: stream.read_all())(path)


def read_all_bytes(path):
    with pa.ipc.open_stream(path.read_bytes()) as stream:
        return stream.read_all()


READERS = [iterate_file, iterate_map, iterate_python_file, read_all_file, read_all_map,
           read_all_bytes]


def transactions(table):
    """The rows of each batch, under the one sequence they share."""
    found = []
    for batch in table.to_batches():
        rows = batch.to_pylist()
        [seq] = {row["seq"] for row in rows}
        found.append((seq, rows))
    return found
