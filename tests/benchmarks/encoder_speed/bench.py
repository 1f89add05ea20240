"""One run of the benchmark: options, timing in turn, the gate on vectors, the device's own rate, rows to be written."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from data.errors import BadDataError
from encoders.base import Vectors, unit
from tests.benchmarks import rows

Candidates = Mapping[str, Callable[[], Vectors]]

EQUAL = 0.9999
"""Least cosine of two float32 vectors of the same thing."""

NOMINAL = {("NVIDIA H200", "bfloat16"): 989.4e12}
"""Dense matrix operations a second that the vendor states."""

_LIBRARIES = ("torch", "transformers", "tokenizers", "sentence-transformers", "numpy")


@dataclass
class Bench:
    """Options of the run, where its files are, and the rows it has gathered."""

    device: str
    scratch: Path
    csv: Path = rows.RESULTS / "encoders.csv"
    commit: str | None = None
    data: Path | None = None
    repeats: int = 3
    threads: int = 2
    texts: int | None = None
    pictures: int | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)

    def say(self, text: str) -> None:
        """One line of news."""
        print(text, file=sys.stderr, flush=True)

    def add(self, what: str, peer: str, metric: str, unit: str, shape: str, samples: Sequence[float]) -> None:
        """Gather a row of `samples`, and say it; the dtype is that of the name `peer`."""
        dtype = dtype_of(peer)
        row = {"what": what, "peer": peer, "metric": metric, "unit": unit, "shape": shape, "dtype": dtype}
        self.rows.append(row | rows.spread(samples))
        self.say(f"{self.rows[-1]['p50']:>12} {unit:12} {metric:28} {what}: {peer} | {shape}")

    def machine(self) -> str:
        """The device in words."""
        if self.device == "cpu":
            return f"{platform.machine()} CPU, {self.threads} threads"
        return torch.cuda.get_device_name(self.device)

    def flush(self) -> None:
        """Append the gathered rows to `csv`: called when their gate has passed and all of them are measured."""
        common = {"machine": self.machine(), "versions": _versions(), "git_sha": self.commit or rows.commit()}
        rows.write(self.csv, self.rows, **common)
        self.rows.clear()

    def seconds(self, call: Callable[[], Any]) -> tuple[float, Any]:
        """(seconds, result) of a call, to the end of what it left running on the device."""
        self.wait()
        start = time.perf_counter()
        result = call()
        self.wait()
        return time.perf_counter() - start, result

    def wait(self) -> None:
        """Until the device has nothing more to do."""
        if self.device != "cpu":
            torch.cuda.synchronize()

    def rounds(self, candidates: Candidates) -> dict[str, list[float]]:
        """Seconds of each candidate, `repeats` times in turn, so that other work on the machine meets all alike."""
        found: dict[str, list[float]] = defaultdict(list)
        for turn in range(self.repeats):
            for name, call in candidates.items():
                found[name].append(self.seconds(call)[0])
                self.say(f"round {turn + 1} of {self.repeats}: {name} {found[name][-1]:.2f} s")
        return found

    def compare(self, what: str, shape: str, count: int, candidates: Candidates, peers: Sequence[str]) -> None:
        """Rows of items a second by candidate, then of every candidate that is no peer over each peer, by round."""
        found = self.rounds(candidates)
        for name, samples in found.items():
            self.add(what, name, "throughput", f"{what}/s", shape, [count / took for took in samples])
        for name in (name for name in found if name not in peers):
            for peer in peers:
                ratios = [theirs / own for theirs, own in zip(found[peer], found[name], strict=True)]
                self.add(what, f"{name} / {peer}", "throughput", "ratio", shape, ratios)

    def gate(self, what: str, shape: str, found: Mapping[str, Vectors], reference: str, half: str) -> None:
        """Raise BadDataError unless ours equal the `reference` in float32, and in bfloat16 are on average no farther
        from it than one and a half times the peer `half`; adds the least cosine of each."""
        for name in (name for name in found if name.startswith("strata")):
            least = check(name, found[name], found[reference], EQUAL if dtype_of(name) == "float32" else 0.9)
            self.add(what, name, "least cosine", "cosine", shape, [least])
            if dtype_of(name) == "float32":
                continue
            ours, theirs = (1 - cosines(found[label], found[reference]).mean() for label in (name, half))
            if ours > 1.5 * theirs:
                raise BadDataError(f"{name}: {ours:.2g} from the reference on average, {half} only {theirs:.2g}")

    def utilisation(self, what: str, name: str, shape: str, flops: float, call: Callable[[], Any]) -> None:
        """Rows of the operations a second of `call`, which does `flops` of them, and on a GPU over what it can do."""
        rates = [flops / self.seconds(call)[0] for _ in range(self.repeats)]
        self.add(what, name, "operations", "TFLOP/s", shape, [rate / 1e12 for rate in rates])
        if self.device == "cpu":
            return
        peaks = {"MFU of a measured product": self.product_rate(getattr(torch, dtype_of(name)))}
        for (word, dtype), stated in NOMINAL.items():
            if word in self.machine() and dtype == dtype_of(name):
                peaks["MFU of the stated peak"] = stated
        for metric, peak in peaks.items():
            self.add(what, name, metric, "share", shape, [rate / peak for rate in rates])

    def product_rate(self, dtype: torch.dtype, repeats: int = 10) -> float:
        """Operations a second of a large square matrix product, the median of `repeats`."""
        side = 8192
        left, right = (torch.randn(side, side, device=self.device).to(dtype) for _ in range(2))
        times = [self.seconds(lambda: left @ right)[0] for _ in range(repeats + 3)]
        return 2 * side**3 / float(np.median(times[3:]))


def _versions() -> str:
    found = {"python": platform.python_version()}
    for name in _LIBRARIES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return rows.versions_text(found)


def dtype_of(name: str) -> str:
    """The dtype that a candidate's name tells, in a ratio that of the first."""
    return "bfloat16" if "bf16" in name.partition(" / ")[0] else "float32"


def cosines(vectors: Vectors, expected: Vectors) -> Vectors:
    """Cosine of each row with its counterpart, (n,)."""
    found: Vectors = (unit(vectors).astype(np.float64) * unit(expected)).sum(axis=1)
    return found


def check(name: str, vectors: Vectors, expected: Vectors, least: float = EQUAL) -> float:
    """The least cosine of a row with its counterpart. Raises BadDataError when it is below `least`, or when rows of
    other items would pass as well, so that the comparison says nothing."""
    if vectors.shape != expected.shape or not np.isfinite(vectors).all():
        raise BadDataError(f"{name}: expected finite vectors {expected.shape}, got {vectors.shape}")
    found = float(cosines(vectors, expected).min())
    if found < least:
        raise BadDataError(f"{name}: expected cosines of at least {least} with the reference, got {found:.6f}")
    others = float(np.median(cosines(vectors, np.roll(expected, 1, axis=0))))
    if others >= found:
        raise BadDataError(f"{name}: expected different items to have different vectors, their cosine is {others:.5f}")
    return found
