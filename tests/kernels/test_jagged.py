from __future__ import annotations

import pytest
import torch

from kernels.jagged import Jagged


def _jagged() -> Jagged:
    return Jagged(torch.arange(10.0).reshape(5, 2), torch.tensor([0, 0, 3, 3, 5]), 4)


def test_lengths_and_rows_count_empty_rows() -> None:
    jagged = _jagged()
    assert len(jagged) == 4
    assert jagged.lengths.tolist() == [0, 3, 0, 2]
    assert jagged.rows.tolist() == [1, 1, 1, 3, 3]


def test_padding_puts_values_left_and_fill_behind() -> None:
    padded = _jagged().to_padded(-1.0)
    assert padded.shape == (4, 4, 2)
    assert padded[1, :3].tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    assert (padded[~_jagged().mask()] == -1.0).all()
    assert _jagged().mask().sum() == 5


def test_padding_and_back_is_identity() -> None:
    jagged = _jagged()
    again = Jagged.from_padded(jagged.to_padded(7.0), jagged.lengths)
    assert torch.equal(again.values, jagged.values)
    assert torch.equal(again.offsets, jagged.offsets)
    assert again.max_len == jagged.max_len


@pytest.mark.parametrize("lengths", [[], [0], [0, 0, 0], [63], [1, 0, 17]])
def test_odd_shapes_round_trip(lengths: list[int]) -> None:
    values = torch.randn(sum(lengths), 3)
    jagged = Jagged.from_lengths(values, torch.tensor(lengths, dtype=torch.int64))
    padded = jagged.to_padded()
    assert padded.shape == (len(lengths), max(lengths, default=0), 3)
    assert torch.equal(Jagged.from_padded(padded, jagged.lengths).values, values)


def test_gradients_reach_every_value_and_no_padding() -> None:
    values = torch.randn(5, 2, dtype=torch.float64, requires_grad=True)
    offsets = torch.tensor([0, 2, 2, 5])
    weights = torch.arange(24, dtype=torch.float64).reshape(3, 4, 2)
    (Jagged(values, offsets, 4).to_padded() * weights).sum().backward()
    expected = weights[Jagged(values.detach(), offsets, 4).mask()]
    assert torch.equal(values.grad, expected)


def test_a_function_applied_value_by_value_keeps_rows() -> None:
    assert torch.equal(_jagged().with_values(torch.ones(5)).to_padded().sum(1), torch.tensor([0.0, 3.0, 0.0, 2.0]))


@pytest.mark.parametrize(
    ("offsets", "max_len", "message"),
    [
        (torch.tensor([0, 5], dtype=torch.int32), 5, "int64"),
        (torch.zeros(0, dtype=torch.int64), 5, "rows \\+ 1"),
        (torch.tensor([1, 5]), 5, "from 0"),
        (torch.tensor([0, 4]), 5, "to 5"),
        (torch.tensor([0, 4, 3, 5]), 5, "fall after row 1"),
        (torch.tensor([0, 5]), 4, "max_len=4"),
        (torch.tensor([0, 5]), -1, "max_len=-1"),
    ],
)
def test_broken_offsets_are_refused(offsets: torch.Tensor, max_len: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Jagged(torch.zeros(5), offsets, max_len)


def test_scalar_values_and_wrong_padded_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="total"):
        Jagged(torch.tensor(1.0), torch.tensor([0, 1]), 1)
    with pytest.raises(ValueError, match="expected padded"):
        Jagged.from_padded(torch.zeros(2, 3), torch.tensor([1]))
