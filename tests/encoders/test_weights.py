import pytest
import torch

from data.errors import SystemStateError, UsageError
from encoders.weights import fingerprint, folder_or_hub_name, licence, package_folder, record


def test_a_fingerprint_follows_names_types_shapes_bytes_and_what_is_added():
    base = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor(3)}
    others = [
        {"a": torch.tensor([1.0, 2.5]), "b": torch.tensor(3)},
        {"a": torch.tensor([[1.0, 2.0]]), "b": torch.tensor(3)},
        {"c": torch.tensor([1.0, 2.0]), "b": torch.tensor(3)},
        {"a": torch.tensor([1.0, 2.0]).view(torch.int32), "b": torch.tensor(3)},
    ]
    found = {fingerprint(tensors) for tensors in (base, *others)} | {fingerprint(base, "words")}
    assert len(found) == 6
    assert fingerprint(dict(reversed(base.items()))) == fingerprint(base)
    assert fingerprint({"a": torch.arange(6).reshape(2, 3).T}) == fingerprint(
        {"a": torch.tensor([[0, 3], [1, 4], [2, 5]])}
    )


def test_the_licence_is_what_the_card_states(tmp_path):
    assert licence(str(tmp_path)) == "unknown"
    (tmp_path / "README.md").write_text("---\nlicense: mit\n---\n# Model\n")
    assert licence(str(tmp_path)) == "mit"


def test_records_are_read_where_there_are_some(tmp_path):
    assert record(str(tmp_path), "config.json") is None
    (tmp_path / "config.json").write_text('{"size": 3}')
    assert record(str(tmp_path), "config.json") == {"size": 3}


def test_a_path_to_no_folder_is_a_usage_error(tmp_path):
    assert folder_or_hub_name(str(tmp_path)) == str(tmp_path)
    assert folder_or_hub_name("org/name") == "org/name"
    for wrong in ("/nowhere", "./nowhere", "~/nowhere", "a/b/c"):
        with pytest.raises(UsageError, match="expected a folder"):
            folder_or_hub_name(wrong)


def test_a_package_that_is_not_installed_is_named():
    with pytest.raises(SystemStateError, match="pip install no-such-package"):
        package_folder("no-such-package")
