"""What a file may be read to: caps against files that are small on disk and huge in memory.

Checked on what the file declares before anything is decoded, and counted while it is decoded, because a file may lie.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from data.errors import BadDataError

RATIO = 200
"""Bytes of content for each byte of a file, beyond `FREE_BYTES`. Logs compress by 5 to 50."""

FREE_BYTES = 1 << 28
"""Content [bytes] that any file may have, however small it is."""

CELL_BYTES = 1 << 20
"""The longest cell of a Parquet file."""

LINE_BYTES = 1 << 23
"""The longest row of a text file."""

_BATCH_BYTES = 1 << 26
_BATCH_ROWS = 65_536


class Meter:
    """Counts the content of one file; `add` raises BadDataError when it is more than the file's size allows."""

    def __init__(self, path: Path) -> None:
        self.path, self.size, self.seen = path, path.stat().st_size, 0
        self.most = max(FREE_BYTES, RATIO * self.size)

    def add(self, count: int) -> None:
        """Note `count` more bytes of content."""
        self.seen += count
        if self.seen > self.most:
            raise BadDataError(
                f"{self.path}: {self.size:,} bytes on disk, more than {self.most:,} when unpacked "
                f"({RATIO} times its size). No log compresses so well: it is not read.\nIf it is sound, write it in "
                "several files, or with less compression."
            )


def check_footer(file: pq.ParquetFile, path: Path, names: Sequence[str]) -> None:
    """Raise BadDataError when a Parquet file declares more than its size allows: rows x columns, or unpacked bytes."""
    about, declared = file.metadata, Meter(path)
    declared.add(about.num_rows * len(names))
    sizes = Meter(path)
    for group in range(about.num_row_groups):
        chunks = (about.row_group(group).column(index) for index in range(about.num_columns))
        sizes.add(sum(chunk.total_uncompressed_size for chunk in chunks))


def parquet_batches(path: Path, names: Sequence[str]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Columns `names` of a Parquet file in batches of at most 65,536 rows and about 64 MiB, checksums verified.

    Raises BadDataError, also while the batches are read, when its content is larger than its size allows.
    """
    file = pq.ParquetFile(path, page_checksum_verification=True, buffer_size=1 << 20)
    check_footer(file, path, names)
    whole = file.schema_arrow
    schema = pa.schema([(name, _plain(whole.field(name).type)) for name in names])
    return schema, (pa.RecordBatch.from_arrays(columns, schema=schema) for columns in _counted(file, path, list(names)))


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _counted(file: pq.ParquetFile, path: Path, names: list[str]) -> Iterator[list[pa.Array]]:
    meter = Meter(path)
    # As dictionaries, repeated values are held once: so the widest can be known before any row is decoded.
    texts = [leaf for leaf in _text_leaves(file) if leaf.split(".")[0] in names]
    probe = pq.ParquetFile(path, page_checksum_verification=True, buffer_size=1 << 20, read_dictionary=texts)
    for group in range(file.metadata.num_row_groups):
        widest = _widest(probe, group, sorted({leaf.split(".")[0] for leaf in texts}))
        _check_cell(path, widest)
        rows = max(1, min(_BATCH_ROWS, _BATCH_BYTES // (1 + widest * max(1, len(texts)))))
        for batch in file.iter_batches(batch_size=rows, row_groups=[group], columns=names, use_threads=False):
            columns = [column.cast(_plain(column.type)) for column in batch.columns]
            meter.add(sum(column.nbytes for column in columns))
            _check_cell(path, max((_longest(column) for column in columns), default=0))
            yield columns


def _text_leaves(file: pq.ParquetFile) -> list[str]:
    columns = (file.schema.column(index) for index in range(len(file.schema)))
    return [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]


def _widest(probe: pq.ParquetFile, group: int, names: list[str]) -> int:
    """The longest value [bytes] in the dictionaries of a row group, read with its first row."""
    if not names or not probe.metadata.row_group(group).num_rows:
        return 0
    first = next(probe.iter_batches(batch_size=1, row_groups=[group], columns=names, use_threads=False))
    return max((_longest(column) for column in first.columns), default=0)


def _longest(array: pa.Array) -> int:
    while pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        array = array.flatten()
    if pa.types.is_dictionary(array.type):
        array = array.dictionary
    if not (pa.types.is_string(array.type) or pa.types.is_binary(array.type) or pa.types.is_large_string(array.type)):
        return 0
    return pc.max(pc.binary_length(array)).as_py() or 0


def _check_cell(path: Path, length: int) -> None:
    if length > CELL_BYTES:
        raise BadDataError(
            f"{path}: expected cells of at most {CELL_BYTES:,} bytes, got one of {length:,}: it is not read"
        )
