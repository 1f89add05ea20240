"""LightGCN and SASRec on published sets, tuned on the validation part and tested once, on a CPU or a GPU.

Export a set first (`python -m tests.benchmarks.learned_retrieval.sets`), then
`python -m tests.benchmarks.retrieval_learned --method sasrec --set amazon-beauty --npz FILE --device cuda --trials 20
--seconds 20 --out DIR`. It needs torch, numpy, scipy and pyarrow only. Protocol: fitted on train, chosen by recall on
valid with train masked (Recall@10 for leave-one-out, Recall@20 for Gowalla); the best setting is fitted again for its
number of epochs and tested. The first trial is always the method's defaults (LightGCN's are the
published ones); `--trials 1` tests them.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from data.errors import StrataError, UsageError
from tests.benchmarks.learned_retrieval import sets, trials


def main(argv: Sequence[str] | None = None) -> None:
    """Run the trials, then the test; lines go to OUT as they come."""
    given = _arguments().parse_args(argv)
    arrays = sets.load(given.npz)
    if arrays.name != given.set:
        raise UsageError(f"--set is {given.set}, and {given.npz} holds {arrays.name}: give the file of that set")
    usual = trials.METHODS[given.method][1]
    named = {name: getattr(given, name) for name in ("epochs", "every", "patience") if getattr(given, name) is not None}
    limits = replace(usual, seconds=given.seconds, record=given.record, **named)
    tuning = trials.Tuning(arrays, given.method, given.device, limits, given.out, json.loads(given.fixed), given.seed)
    best = trials.tune(tuning, given.trials, given.total, _say)
    _say(f"best: trial {best.number}, {json.dumps(best.setting)}")
    trials.final(tuning, best, range(given.seed, given.seed + given.seeds), _say)


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--method", choices=sorted(trials.METHODS), required=True)
    parser.add_argument("--set", required=True)
    parser.add_argument("--npz", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=math.inf, help="clock of one fit")
    parser.add_argument("--total", type=float, default=math.inf, help="no trial begins after so many seconds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1, help="seeds of the final test, from --seed on")
    parser.add_argument("--fixed", default="{}", help="JSON: keys of the setting that hold in every trial")
    parser.add_argument("--record", action="store_true", help="replay steps as CUDA graphs")
    parser.add_argument("--epochs", type=int, help="at most; the method's own number otherwise, as the next two")
    parser.add_argument("--every", type=int, help="epochs between validations")
    parser.add_argument("--patience", type=int, help="validations without a better one")
    return parser


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    try:
        main()
    except StrataError as problem:
        sys.exit(f"error: {problem}")
