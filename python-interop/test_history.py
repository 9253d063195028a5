"""History files, as stock Parquet readers read them: every row is that of the live log."""

import os
import re

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

import refstone_audit
from harness import ROOT, run

GOLDEN = ROOT / "tests" / "golden"
FORMS = ["full", "derived"]


def live(path):
    with pa.ipc.open_stream(pa.OSFile(str(path))) as stream:
        table = stream.read_all().combine_chunks()
    table.validate(full=True)
    return table.replace_schema_metadata(None)


def history(form, directory):
    return directory / f"{form}.parquet"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A log of every kind of move, and the same sealed in both forms: two row groups each."""
    directory = tmp_path_factory.mktemp("history")
    write = ["cargo", "test", "--quiet", "--package", "refstone", "--lib", "--", "--ignored",
             "--exact", "sealed::tests::golden::write_corpus"]
    environment = {**os.environ, "REFSTONE_HISTORY_CORPUS": str(directory)}
    run(*write, cwd=ROOT, env=environment, text=True)
    (directory / "log.arrow").symlink_to(directory / "log" / "refs.arrow")
    return directory


def by_pyarrow(path):
    return parquet.read_table(path)


def by_polars(path):
    return polars.read_parquet(path).to_arrow()


def by_duckdb(path):
    return duckdb.sql(f"SELECT * FROM '{path}'").to_arrow_table()


READERS = [by_pyarrow, by_polars, by_duckdb]


# Breaks: an encoding that a reader does not know; a distance counted from another row; a null that
# is told as empty.
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_every_row_is_that_of_the_log(corpus, reader, form):
    expected = live(corpus / "log.arrow")
    assert expected.num_rows == 70_000
    table = reader(history(form, corpus))
    if reader is not by_pyarrow:
        table = as_written(table, expected.schema)
    found = refstone_audit._with_old_oids(table).select(expected.schema.names)
    assert found.cast(expected.schema).equals(expected)


def as_written(table, schema):
    """The table with the types of the file: polars and duckdb have no bytes of one width."""
    columns = []
    for name in table.column_names:
        column = table[name].combine_chunks()
        if name.endswith("_oid"):
            column = column.cast(pa.binary()).cast(schema.field(name).type)
        columns.append(column)
    return pa.table(columns, names=table.column_names)


# Break: types of our own in the file, which the schema would have to explain.
@pytest.mark.parametrize("objects", ["sha1", "sha256"])
def test_the_golden_files_hold_the_golden_logs(objects):
    expected = live(GOLDEN / f"format-1-{objects}.arrow")
    full = by_pyarrow(GOLDEN / f"history-1-{objects}-full.parquet").replace_schema_metadata(None)
    assert full.schema.equals(expected.schema)
    assert full.equals(expected)
    derived = by_pyarrow(GOLDEN / f"history-1-{objects}-derived.parquet")
    assert derived.schema.names == [*expected.schema.names, "old_back"]
    assert [back for back in derived["old_back"].to_pylist() if back] == [1]
    found = refstone_audit._with_old_oids(derived).select(expected.schema.names)
    assert found.replace_schema_metadata(None).equals(expected)


def sql_of_the_documentation():
    page = (ROOT / "docs" / "format.md").read_text()
    [query] = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    return query


# Break: a distance that is not to the move of the same reference before.
def test_the_window_query_of_the_documentation_derives_the_same(corpus, monkeypatch):
    monkeypatch.chdir(corpus)
    (corpus / "1-65536.parquet").symlink_to(corpus / "derived.parquet")
    found = duckdb.sql(sql_of_the_documentation()).to_arrow_table()
    expected = live(corpus / "log.arrow")
    found = as_written(found, expected.schema)
    assert found.cast(expected.schema).equals(expected)


@pytest.mark.parametrize("form", FORMS)
def test_the_metadata_says_what_the_file_is(corpus, form):
    metadata = parquet.read_metadata(history(form, corpus))
    pairs = {key.decode(): value.decode() for key, value in metadata.metadata.items()}
    assert pairs["refstone.kind"] == "history" and pairs["refstone.form"] == form
    assert (pairs["refstone.first_seq"], pairs["refstone.last_seq"]) == ("1", "56000")
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    assert [group.num_rows for group in groups] == [65_536, 70_000 - 65_536]
    assert groups[1].column(0).statistics.max == 56_000


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


# Break: bytes under no checksum. This is how a program of one's own finds damage.
@pytest.mark.parametrize("form", FORMS)
def test_the_checksums_are_those_of_the_documentation(form):
    path = GOLDEN / f"history-1-sha1-{form}.parquet"
    file = path.read_bytes()
    footer = len(file) - 8 - int.from_bytes(file[-8:-4], "little")
    pairs = parquet.read_metadata(path).metadata
    size, digits = pairs[b"refstone.blocks"].decode().split(":")
    size = int(size)
    blocks = [file[start:min(start + size, footer)] for start in range(0, footer, size)]
    assert digits == "".join(f"{crc32c(block):08x}" for block in blocks)
    stored = pairs[b"refstone.checksum"]
    blank = file[footer:].replace(stored, b"crc32c:00000000")
    assert stored.decode() == f"crc32c:{crc32c(blank):08x}"
