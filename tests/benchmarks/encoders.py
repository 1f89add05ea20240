"""Encoders: texts a second against sentence-transformers, pictures a second against a plain loop, and utilisation;
whether neighbours and clusters of real photos and titles say what a product is (`fashion`); products that nobody has
touched (`cold`).

    strata bench encoders [--parts text,image,fashion,cold] [--device cpu|cuda] [--repeats 3] [--data FOLDER]

On a CPU, text takes the packaged model and the real titles and descriptions of two public sets below --data; on a GPU
random weights of known shapes and made texts, so that nothing need be carried there. All candidates run in turn, and
rows go to results/encoders.csv, or to --csv, only after their vectors were found equal in the same run.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import tempfile
from pathlib import Path

from data.errors import StrataError, SystemStateError, UsageError, nearest
from tests.benchmarks import rows
from tests.benchmarks.encoder_speed import image, text
from tests.benchmarks.encoder_speed.bench import Bench


def _fashion(bench: Bench) -> None:
    from tests.benchmarks.encoder_quality import parts  # here: a GPU machine may lack what the pipeline needs

    parts.measure_fashion(bench)


def _cold(bench: Bench) -> None:
    from tests.benchmarks.encoder_quality import parts

    parts.measure_cold(bench)


PARTS = {"text": text.measure, "image": image.measure, "fashion": _fashion, "cold": _cold}
RESULTS = rows.RESULTS / "encoders.csv"


def main() -> None:
    """Measure the parts asked for and append rows, those of each model as soon as they are there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="text", help=f"any of {','.join(PARTS)}")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="where the networks run")
    parser.add_argument("--repeats", type=int, default=3, help="times each candidate runs, in turn")
    parser.add_argument("--threads", type=int, default=2, help="threads on the CPU, and batches under way at once")
    parser.add_argument("--data", type=Path, default=None, help="folder of the public sets (default: $STRATA_DATA)")
    parser.add_argument("--texts", type=int, default=None, help="how many (default: all real ones, 30,000 made)")
    parser.add_argument("--pictures", type=int, default=None, help="how many pictures")
    parser.add_argument("--csv", type=Path, default=RESULTS, help="file the rows go to (default: %(default)s)")
    parser.add_argument("--commit", default=None, help="commit of the checkout, where git can't tell it")
    try:
        _run(parser.parse_args())
    except StrataError as error:
        print(f"encoders: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def _run(options: argparse.Namespace) -> None:
    chosen = options.parts.split(",")
    for part in chosen:
        if part not in PARTS:
            raise UsageError(f"no part {part!r}: {nearest(part, PARTS)}")
    if "text" in chosen and importlib.util.find_spec("sentence_transformers") is None:
        raise SystemStateError("expected sentence-transformers to compare with, found none: pip install -e '.[bench]'")
    data = options.data or (Path(os.environ["STRATA_DATA"]) if "STRATA_DATA" in os.environ else None)
    if options.device == "cpu" and "text" in chosen and data is None:
        raise UsageError("expected --data or STRATA_DATA, the folder of the public sets, got neither")
    with tempfile.TemporaryDirectory(prefix="strata-bench-") as scratch:
        where = (options.device, Path(scratch), options.csv, options.commit, data)
        bench = Bench(*where, options.repeats, options.threads, options.texts, options.pictures)
        for part in chosen:
            PARTS[part](bench)


if __name__ == "__main__":
    main()
