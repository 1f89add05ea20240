"""Immutable artifacts: a folder with a manifest, visible only when complete, named by a hash of its causes.

store/<stage>/<key>/manifest.json + files        finished, never changed
store/work/<stage>/<key>/                        checkpoints and shards of a run in progress
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from data import lease as leases
from data.errors import BadDataError, SystemStateError
from data.schema import SCHEMA_VERSION

_CHUNK = 1 << 20
_NO_LINK = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EACCES}
_PICKLES = {".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".bin"}


def artifact_key(
    stage: str, config: Mapping[str, Any], seed: int, inputs: Mapping[str, str], code: str, sources: Any = None
) -> str:
    """20 hex digits that depend on everything that can change the artifact (DESIGN section 4).

    `config` holds result-affecting fields only; `sources` identifies raw input files (path-free content hashes).
    """
    causes = [stage, SCHEMA_VERSION, dict(config), seed, dict(inputs), code, sources]
    return hashlib.sha256(json.dumps(causes, sort_keys=True).encode()).hexdigest()[:20]


def sha256_file(path: Path) -> str:
    """Hex sha256 of a file, read in 1 MiB pieces."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        while piece := stream.read(_CHUNK):
            digest.update(piece)
    return digest.hexdigest()


def read_parquet(path: Path, columns: list[str] | None = None, filters: Any = None) -> pa.Table:
    """A Parquet file as an Arrow table, its page checksums verified, with `columns` in the order asked for."""
    if filters is not None:
        return pq.read_table(path, columns=columns, filters=filters, page_checksum_verification=True)
    # Without a filter no data set is needed, and loading that machinery takes half a second.
    with pq.ParquetFile(path, page_checksum_verification=True) as reader:
        table = reader.read(columns=columns)
    return table if columns is None else table.select(columns)


@dataclass(frozen=True)
class ArtifactRef:
    """A finished artifact. Small and hashable: this is what tasks pass to each other, never data."""

    stage: str
    key: str
    path: Path

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """The manifest as written; raises BadDataError when it is missing or torn."""
        try:
            loaded = json.loads((self.path / "manifest.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise BadDataError(f"{self.stage} {self.key}: manifest unreadable ({error}). {self._remedy}") from error
        return dict(loaded)

    @property
    def metrics(self) -> dict[str, Any]:
        """The figures the stage reported."""
        return dict(self.manifest["metrics"])

    @property
    def _remedy(self) -> str:
        return f"Delete {self.path} and run again: it will be made anew."

    def file(self, name: str) -> Path:
        """Path of a file the manifest lists; raises BadDataError when it is not listed or its size differs."""
        listed = self.manifest["files"].get(name)
        if listed is None:
            raise BadDataError(f"{self.stage} {self.key}: expected file {name!r}, got {sorted(self.manifest['files'])}")
        path = self.path / name
        size = path.stat().st_size if path.exists() else -1
        if size != listed["bytes"]:
            came = "no file" if size < 0 else f"{size} bytes"
            raise BadDataError(
                f"{self.stage} {self.key}: {name} is torn: expected {listed['bytes']} bytes, got {came}. {self._remedy}"
            )
        return path

    def names(self, folder: str) -> list[str]:
        """The listed files below `folder` (with its closing slash), in name order."""
        return sorted(name for name in self.manifest["files"] if name.startswith(folder))

    def rows(self, name: str) -> int:
        """Recorded rows of a file, or of all files below a folder named with its closing slash."""
        return sum(int(self.manifest["files"][part]["rows"]) for part in self._parts(name))

    def paths(self, name: str) -> list[str]:
        """Where a file lies, or all those below a folder named with its closing slash, for readers of many files."""
        return [str(self.file(part)) for part in self._parts(name)]

    def table(self, name: str, columns: list[str] | None = None, filters: Any = None) -> pa.Table:
        """A Parquet file as an Arrow table (page checksums verified), or all those below a folder one after the other.

        A folder is named with its closing slash.
        """
        tables = [read_parquet(self.file(part), columns, filters) for part in self._parts(name)]
        if not tables:
            raise BadDataError(f"{self.stage} {self.key}: expected files below {name!r}, found none. {self._remedy}")
        return pa.concat_tables(tables)

    def batches(self, name: str, columns: list[str] | None = None, rows: int = 65_536) -> Iterator[pa.RecordBatch]:
        """The same in batches of at most `rows` rows, so that memory does not grow with the files."""
        for part in self._parts(name):
            with pq.ParquetFile(self.file(part), page_checksum_verification=True) as reader:
                yield from reader.iter_batches(batch_size=rows, columns=columns)

    def _parts(self, name: str) -> list[str]:
        return self.names(name) if name.endswith("/") else [name]

    def array(self, name: str) -> np.ndarray:
        """A .npy file of the artifact, memory-mapped read-only."""
        array: np.ndarray = np.load(self.file(name), mmap_mode="r", allow_pickle=False)
        return array

    def json(self, name: str) -> Any:
        """A JSON file of the artifact."""
        return json.loads(self.file(name).read_text(encoding="utf-8"))

    def version(self, name: str) -> str:
        """First 16 hex digits of a file's sha256: equal content has an equal version, whatever it was made from."""
        self.file(name)
        return str(self.manifest["files"][name]["sha256"])[:16]

    def has(self, name: str) -> bool:
        """Whether the manifest lists `name`."""
        return name in self.manifest["files"]

    def check_sizes(self) -> None:
        """Raise BadDataError when any listed file is missing or of another size."""
        for name in self.manifest["files"]:
            self.file(name)

    def verify(self) -> None:
        """Re-hash every file; raises BadDataError naming the first that differs from the manifest."""
        for name, listed in self.manifest["files"].items():
            actual = sha256_file(self.file(name))
            if actual != listed["sha256"]:
                raise BadDataError(
                    f"{self.stage} {self.key}: {name} was altered: expected sha256 {listed['sha256'][:16]}…, "
                    f"got {actual[:16]}…. {self._remedy}"
                )


@dataclass
class OutputDir:
    """Where a stage writes artifact `key`. `path` becomes it when the stage returns; `work` survives a killed run."""

    path: Path
    work: Path
    key: str
    rows: dict[str, int] = field(default_factory=dict)
    adopted: dict[str, dict[str, Any]] = field(default_factory=dict)
    _folders: set[Path] = field(default_factory=set)  # made already: making one costs more than linking a file

    def file(self, name: str) -> Path:
        """Path to write `name` at (parent folders made); raises BadDataError for pickle-like suffixes."""
        target = self.path / name
        if target.suffix in _PICKLES:
            raise BadDataError(f"{name}: artifacts hold no pickles; write safetensors, npy, Parquet or JSON")
        if target.parent not in self._folders:
            target.parent.mkdir(parents=True, exist_ok=True)
            self._folders.add(target.parent)
        if self.adopted.pop(name, None):
            target.unlink()  # written anew: the other artifact shares these bytes and must keep them
        return target

    def adopt(self, ref: ArtifactRef, name: str, as_name: str | None = None) -> None:
        """Take a file of another artifact unchanged, as `as_name` if that is given: no bytes are moved or hashed.

        It is hard-linked (copied where links cannot be made, as across file systems), so either artifact may be
        deleted. Its recorded rows and sha256 are kept. Raises BadDataError when it is not listed or torn.
        """
        link_file(ref.file(name), self.file(as_name or name))
        listed = ref.manifest["files"][name]
        self.adopted[as_name or name] = dict(listed)
        if listed["rows"] is not None:
            self.rows[as_name or name] = listed["rows"]

    def take(self, source: Path, name: str, rows: int | None = None) -> None:
        """Take a finished file of `work` as `name`, without moving its bytes; it must not be written to again."""
        link_file(source, self.file(name))
        self.rows |= {} if rows is None else {name: rows}

    def write_table(self, name: str, table: pa.Table) -> None:
        """Write one Arrow table as Parquet (zstd, page checksums)."""
        self.write_batches(name, table.schema, [table])

    def write_batches(self, name: str, schema: pa.Schema, tables: Iterable[pa.Table | pa.RecordBatch]) -> int:
        """Write tables or batches one after the other as row groups of at most 131,072 rows; returns the row count."""
        count = 0
        with pq.ParquetWriter(self.file(name), schema, compression="zstd", write_page_checksum=True) as writer:
            for piece in tables:
                table = pa.Table.from_batches([piece]) if isinstance(piece, pa.RecordBatch) else piece
                if table.num_rows:
                    writer.write_table(table, row_group_size=131_072)
                count += table.num_rows
        self.rows[name] = count
        return count

    def write_array(self, name: str, array: np.ndarray) -> None:
        """Write one array as .npy; its first axis is recorded as the row count."""
        np.save(self.file(name), np.ascontiguousarray(array), allow_pickle=False)
        self.rows[name] = len(array)

    def open_array(self, name: str, shape: tuple[int, ...], dtype: Any) -> np.memmap:
        """A new .npy file to fill in place, for arrays larger than memory."""
        self.rows[name] = shape[0]
        mapped: np.memmap = np.lib.format.open_memmap(self.file(name), mode="w+", dtype=np.dtype(dtype), shape=shape)
        return mapped

    def write_json(self, name: str, value: Any) -> None:
        """Write a JSON file with sorted keys."""
        self.file(name).write_text(json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False), encoding="utf-8")

    def write_tensors(self, name: str, tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> None:
        """Write torch tensors as safetensors."""
        from safetensors.torch import save_file

        ready = {key: value.detach().cpu().contiguous() for key, value in tensors.items()}
        save_file(ready, self.file(name), metadata=dict(metadata or {}))


class Store:
    """A folder of artifacts. Reading it needs no lock: an artifact is complete the moment it has its name."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)

    def find(self, stage: str, key: str) -> ArtifactRef | None:
        """The finished artifact, sizes checked, or None when there is none."""
        ref = ArtifactRef(stage, key, self.root / stage / key)
        if not ref.path.is_dir():
            return None
        ref.check_sizes()
        return ref

    def get(self, stage: str, key: str) -> ArtifactRef:
        """The finished artifact; raises BadDataError when it is absent or torn."""
        ref = self.find(stage, key)
        if ref is None:
            raise BadDataError(f"expected artifact {stage}/{key} in {self.root}, found none: run the pipeline again")
        return ref

    def work(self, stage: str, key: str) -> Path:
        """The folder for checkpoints and the lease of a key."""
        return self.root / "work" / stage / key

    @contextmanager
    def publish(self, stage: str, key: str, causes: Mapping[str, Any]) -> Iterator[tuple[OutputDir, dict[str, Any]]]:
        """Yield an OutputDir and a dict for manifest extras; on a clean exit the artifact appears at once.

        `causes` goes into the manifest (inputs, config, seed, versions). On any error nothing becomes visible
        and `work` stays. Raises SystemStateError when another run writes this key or the disk is full.
        """
        work = self.work(stage, key)
        with full_disk_explained(self.root), leases.hold(work, f"{stage} {key}") as lease:
            parent = self.root / stage
            parent.mkdir(parents=True, exist_ok=True)
            for stale in parent.glob(f".{key}.*"):
                shutil.rmtree(stale, ignore_errors=True)
            draft = parent / f".{key}.{lease.fence}"
            draft.mkdir()
            extras: dict[str, Any] = {}
            out = OutputDir(draft, work, key)
            try:
                yield out, extras
                manifest = {"stage": stage, "key": key, "schema_version": SCHEMA_VERSION, **causes, **extras}
                manifest["files"] = _describe(draft, out.rows, out.adopted)
                out.write_json("manifest.json", manifest)
                _fsync_tree(draft)
                leases.check_fence(work, lease)
                if (parent / key).exists():  # finished by another run between our look and our lease: theirs is equal
                    shutil.rmtree(draft)
                else:
                    os.rename(draft, parent / key)
                _fsync(parent)
            except BaseException:
                shutil.rmtree(draft, ignore_errors=True)
                raise
        clear_work(work)


def link_file(source: Path, target: Path) -> None:
    """Give a finished file a second name, or copy it where links cannot be made, as across file systems."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        shutil.copyfile(source, target)


def clear_work(work: Path) -> None:
    """Remove a finished key's checkpoints but keep its lease file, whose fencing number must never go back."""
    for path in work.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif not path.name.startswith("lease."):
            path.unlink()


@contextmanager
def full_disk_explained(root: Path) -> Iterator[None]:
    """Turn 'no space left', and 'not allowed' below `root`, into a SystemStateError that says what to do."""
    try:
        yield
    except OSError as error:
        if not _is_about_store(error, root):
            raise
        probe = next(p for p in (root, *root.resolve().parents) if p.exists())
        free = shutil.disk_usage(probe).free
        raise SystemStateError(
            f"cannot write to the store {root}: {error.strerror} ({free / 1e6:,.0f} MB free).\n"
            "Free some space or choose another --store; what was published before is unchanged."
        ) from error


def _is_about_store(error: OSError, root: Path) -> bool:
    if error.errno in (errno.EACCES, errno.EROFS):
        # An input file that may not be read raises the same: only paths of the store are the store's fault.
        named = Path(os.fsdecode(error.filename)).resolve() if error.filename else None
        return named is not None and (
            root.resolve() in named.parents or named in (root.resolve(), *root.resolve().parents)
        )
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def _describe(folder: Path, rows: Mapping[str, int], adopted: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    described = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = path.relative_to(folder).as_posix()
        described[name] = adopted.get(name) or {
            "sha256": sha256_file(path),
            "bytes": path.stat().st_size,
            "rows": rows.get(name),
        }
    return described


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _fsync_tree(folder: Path) -> None:
    for path in sorted(folder.rglob("*")):
        _fsync(path)
    _fsync(folder)
