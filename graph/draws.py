"""Random numbers by counter: hashes of what they are for, equal on every device and whatever was drawn before."""

from __future__ import annotations

import torch
from torch import Tensor

_WORD = 1 << 64
_GOLDEN, _MIX_1, _MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def counter_hash(*parts: int | Tensor) -> Tensor:
    """Hash of integers and integer tensors, which broadcast: SplitMix64 (Steele et al., 2014) folded over them.

    int64 with the bits of the unsigned result: torch has no unsigned arithmetic, but int64 multiplies and adds modulo
    2^64 all the same. Without tensors the result is one element on the CPU.
    """
    state: int | Tensor = 0
    for part in parts:
        if isinstance(state, int) and isinstance(part, int):
            state = _mixed_int(state ^ part % _WORD)
        else:
            # ^ with at least one tensor is a tensor, which the types do not say.
            state = _mixed(torch.as_tensor(_signed(state) ^ _signed(part)))
    return torch.tensor(_signed(state)) if isinstance(state, int) else state


def below(hashes: Tensor, count: Tensor) -> Tensor:
    """Hashes as int64 in [0, count) for 0 <= count < 2^31, by multiply and shift (Lemire, 2019); of 0 they are 0."""
    return (_shifted(hashes, 32) * count) >> 32


def unit_interval(hashes: Tensor) -> Tensor:
    """Hashes as float64 in [0, 1)."""
    return _shifted(hashes, 11).to(torch.float64) * 2.0**-53


def _mixed(state: Tensor) -> Tensor:
    """In place on `state`: three passes over memory fewer than fresh tensors would need."""
    state = state + _signed(_GOLDEN)
    for shift, factor in ((30, _MIX_1), (27, _MIX_2)):
        state ^= _shifted(state, shift)
        state *= _signed(factor)
    state ^= _shifted(state, 31)
    return state


def _mixed_int(state: int) -> int:
    state = (state + _GOLDEN) % _WORD
    for shift, factor in ((30, _MIX_1), (27, _MIX_2)):
        state = (state ^ state >> shift) * factor % _WORD
    return state ^ state >> 31


def _shifted(state: Tensor, bits: int) -> Tensor:
    """Logical right shift: int64's own shift copies the sign, which the mask takes off."""
    return (state >> bits).bitwise_and_((1 << 64 - bits) - 1)


def _signed(value: int | Tensor) -> int | Tensor:
    """An integer as the int64 with its bits; tensors as they are."""
    if isinstance(value, Tensor):
        return value.to(torch.int64)
    value %= _WORD
    return value - _WORD if value >> 63 else value
