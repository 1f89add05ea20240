"""A checkpoint is the state as saved, bit for bit, or the one before it."""

import os

import pytest
import torch

from data import checkpoint
from data.errors import BadDataError


def test_tensors_and_state_come_back_bit_for_bit(tmp_path):
    path = tmp_path / "c.safetensors"
    saved = {
        "a.w": torch.randn(3, 5).t(),
        "step": torch.tensor(7),
        "empty": torch.zeros(0, 2),
        "half": torch.ones(2).bfloat16(),
    }
    checkpoint.save(path, saved, {"step": 3, "name": "é", "losses": [0.5]})
    tensors, state = checkpoint.load(path)
    assert state == {"step": 3, "name": "é", "losses": [0.5]}
    assert tensors.keys() == saved.keys()
    assert all(torch.equal(tensors[name], saved[name]) and tensors[name].dtype == saved[name].dtype for name in saved)


def test_none_is_found_before_the_first_save_and_a_torn_one_is_refused(tmp_path):
    path = tmp_path / "c.safetensors"
    assert checkpoint.load(path) is None
    checkpoint.save(path, {"w": torch.ones(100)}, {})
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(BadDataError, match="unreadable"):
        checkpoint.load(path)


def test_a_crash_while_saving_keeps_the_previous_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "c.safetensors"
    checkpoint.save(path, {"w": torch.ones(2)}, {"step": 1})
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(path, {"w": torch.zeros(2)}, {"step": 2})
    tensors, state = checkpoint.load(path)
    assert state == {"step": 1}
    assert tensors["w"].tolist() == [1, 1]


def test_an_optimizer_state_flattens_to_named_tensors():
    state = {0: {"step": torch.tensor(1.0), "exp_avg": torch.ones(2)}, 1: {"step": 4}}
    flat = checkpoint.flatten("opt", state)
    assert {name: value.tolist() for name, value in flat.items()} == {
        "opt.0.step": 1.0,
        "opt.0.exp_avg": [1.0, 1.0],
        "opt.1.step": 4,
    }
    assert checkpoint.flatten("x", {"n": 3, "f": 0.5, "s": "text"}).keys() == {"x.n", "x.f"}
