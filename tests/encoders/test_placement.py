import pytest
import torch

from data.errors import SystemStateError, UsageError
from encoders.placement import device_of, dtype_of


def test_devices_and_types_by_name():
    assert device_of("cpu") == torch.device("cpu")
    assert dtype_of("bfloat16") is torch.bfloat16
    with pytest.raises(UsageError, match="cpu or cuda"):
        device_of("gpu")
    with pytest.raises(UsageError, match="float32 or bfloat16"):
        dtype_of("int8")


def test_a_gpu_that_is_not_there_is_said(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemStateError, match="set device to cpu"):
        device_of("cuda:1")
