"""Rules of the tree that a machine can hold: layers, names, sizes, docstrings, the `kernels` import trap."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("data", "graph", "encoders", "hierarchy", "ranking", "kernels", "flows")
MODULES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
SHADOWED = {"triton", "tokenize", "profile", "utils", "util", "common", "misc", "helper", "helpers"}


def test_import_contracts_hold():
    lint = Path(sys.executable).with_name("lint-imports")
    result = subprocess.run([str(lint), "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_transformers_does_not_take_our_kernels_folder_for_the_hub_package():
    from transformers.utils.import_utils import is_kernels_available

    import kernels

    assert Path(kernels.__file__).parent == ROOT / "kernels"
    assert not is_kernels_available()
    assert not hasattr(kernels, "__version__")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_module_is_small_named_well_and_documented(path):
    source = path.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 450
    assert path.stem not in SHADOWED
    tree = ast.parse(source)
    assert ast.get_docstring(tree), "a module says what its one job is"
    public = [n for n in tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef)) and not n.name.startswith("_")]
    missing = [node.name for node in public if not ast.get_docstring(node)]
    assert not missing


def test_no_stage_result_is_ever_pickled():
    for path in MODULES:
        source = path.read_text(encoding="utf-8")
        assert "import pickle" not in source, path
        assert "allow_pickle=True" not in source, path


@pytest.mark.parametrize("module", ["flows.inspection", "hierarchy.query", "flows.__main__"])
def test_reading_commands_import_neither_torch_nor_prefect(module):
    code = f"import sys, {module}; print(sorted({{'torch', 'prefect', 'transformers'}} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_sql_is_never_pasted_together():
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in {"execute", "sql"}
            ):
                assert not any(isinstance(arg, (ast.JoinedStr, ast.BinOp)) for arg in node.args), (
                    f"{path}:{node.lineno}"
                )
