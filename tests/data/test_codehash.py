"""A stage's code hash follows its folder and what that imports, and nothing else."""

import pytest

from data import codehash

FOLDERS = {
    "data/base.py": "x = 1\n",
    "data/sql/q.sql": "SELECT 1;\n",
    "graph/build.py": "import numpy\nfrom data.base import x\n",
    "ranking/train.py": "def f():\n    import kernels.jagged\n",
    "kernels/jagged.py": "y = 1\n",
    "hierarchy/train.py": "from graph import build\n",
}


@pytest.fixture
def project(tmp_path, monkeypatch):
    for name, text in FOLDERS.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(codehash, "ROOT", tmp_path)
    return tmp_path


def test_imports_are_followed_transitively_and_inside_functions(project):
    assert codehash.imported_folders("hierarchy") == {"hierarchy", "graph", "data"}
    assert codehash.imported_folders("ranking") == {"ranking", "kernels"}
    assert codehash.imported_folders("data") == {"data"}


def hashes():
    return {name: codehash.code_hash.__wrapped__(name) for name in ("data", "graph", "hierarchy", "ranking")}


@pytest.mark.parametrize(
    ("changed", "affected"),
    [
        ("data/base.py", {"data", "graph", "hierarchy"}),
        ("data/sql/q.sql", {"data", "graph", "hierarchy"}),
        ("kernels/jagged.py", {"ranking"}),
        ("hierarchy/train.py", {"hierarchy"}),
    ],
)
def test_a_changed_line_changes_exactly_the_stages_that_reach_it(project, changed, affected):
    before = hashes()
    (project / changed).write_text(FOLDERS[changed] + "\n")
    after = hashes()
    assert {name for name in before if before[name] != after[name]} == affected


def test_a_renamed_file_counts_and_caches_do_not(project):
    before = hashes()["data"]
    (project / "data/__pycache__").mkdir()
    (project / "data/__pycache__/junk.py").write_text("z")
    (project / "data/README.md").write_text("z")
    assert hashes()["data"] == before
    (project / "data/base.py").rename(project / "data/bottom.py")
    assert hashes()["data"] != before


def test_the_real_data_folder_stands_alone():
    assert codehash.imported_folders("data") == {"data"}
