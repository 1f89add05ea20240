"""Encoders: texts a second against sentence-transformers, pictures a second against a plain loop, and utilisation.

    strata bench encoders [--parts text,image] [--device cpu|cuda] [--repeats 3] [--data FOLDER] [--csv FILE]

On a CPU, text takes the packaged model and the real titles and descriptions of two public sets below --data; on a GPU
random weights of known shapes and made texts, so that nothing need be carried there. All candidates run in turn, and
rows go to results/encoders.csv, or to --csv, only after their vectors were found equal in the same run.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import platform
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from data.errors import StrataError, SystemStateError, UsageError, nearest
from tests.benchmarks import rows
from tests.benchmarks.encoder_speed import image, text
from tests.benchmarks.encoder_speed.bench import Bench

PARTS = {"text": text.measure, "image": image.measure}
_LIBRARIES = ("torch", "transformers", "tokenizers", "sentence-transformers", "numpy")


def main() -> None:
    """Measure the parts asked for and append rows part by part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="text", help=f"any of {','.join(PARTS)}")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="where the networks run")
    parser.add_argument("--repeats", type=int, default=3, help="times each candidate runs, in turn")
    parser.add_argument("--threads", type=int, default=2, help="threads on the CPU, and batches under way at once")
    parser.add_argument("--data", type=Path, default=None, help="folder of the public sets (default: $STRATA_DATA)")
    parser.add_argument("--texts", type=int, default=None, help="how many (default: all real ones, 30,000 made)")
    parser.add_argument("--pictures", type=int, default=None, help="how many pictures")
    parser.add_argument("--csv", type=Path, default=None, help="write the rows there, not to results/encoders.csv")
    parser.add_argument("--commit", default=None, help="commit of the checkout, where git can't tell it")
    try:
        _run(parser.parse_args())
    except StrataError as error:
        print(f"encoders: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def _run(options: argparse.Namespace) -> None:
    parts = options.parts.split(",")
    for part in parts:
        if part not in PARTS:
            raise UsageError(f"no part {part!r}: {nearest(part, PARTS)}")
    if "text" in parts and importlib.util.find_spec("sentence_transformers") is None:
        raise SystemStateError("expected sentence-transformers to compare with, found none: pip install -e '.[bench]'")
    data = options.data or (Path(os.environ["STRATA_DATA"]) if "STRATA_DATA" in os.environ else None)
    if options.device == "cpu" and "text" in parts and data is None:
        raise UsageError("expected --data or STRATA_DATA, the folder of the public sets, got neither")
    with tempfile.TemporaryDirectory(prefix="strata-bench-") as scratch:
        sizes = (options.repeats, options.threads, options.texts, options.pictures)
        bench = Bench(options.device, Path(scratch), data, *sizes)
        for part in parts:
            PARTS[part](bench)
            flush(bench, options.csv, options.commit)


def flush(bench: Bench, file: Path | None, commit: str | None) -> None:
    """Append the gathered rows: called when the gate of a part has passed."""
    common = {"machine": bench.machine(), "versions": _versions(), "git_sha": commit or rows.commit()}
    rows.write(file or rows.RESULTS / "encoders.csv", bench.rows, **common)
    bench.rows.clear()


def _versions() -> str:
    found = {"python": platform.python_version()}
    for name in _LIBRARIES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return rows.versions_text(found)


if __name__ == "__main__":
    main()
