"""A delimited text file of a published set as an Arrow table of given columns."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
from pyarrow import csv

from data.errors import BadDataError
from data.sources import texts


def read_table(root: Path, name: str, columns: Mapping[str, pa.DataType], delimiter: str = ",") -> pa.Table:
    """The named columns of file `name` of the set at `root`, in that order; an empty text is null.

    Raises BadDataError as `texts.read` does, and for a file without those columns or with cells of another type.
    """
    content = pa.py_buffer(texts.read(root, name).encode())
    parsing = csv.ParseOptions(delimiter=delimiter, quote_char=False)
    converting = csv.ConvertOptions(
        column_types=dict(columns), include_columns=list(columns), null_values=[""], strings_can_be_null=True
    )
    try:
        return csv.read_csv(pa.BufferReader(content), csv.ReadOptions(use_threads=False), parsing, converting)
    except (pa.ArrowInvalid, KeyError) as error:
        raise BadDataError(f"{root}: {name}: expected columns {', '.join(columns)}: {str(error)[:300]}") from error
