import threading
from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch

from kernels.captured import Captured, _copies, _filled, _form, _listed

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


class Pair(NamedTuple):
    one: torch.Tensor
    other: int


@dataclass(frozen=True)
class Nested:
    pair: Pair
    rest: tuple[torch.Tensor | None, ...]
    named: dict[str, torch.Tensor]


def nested(size: int, other: int = 3) -> Nested:
    return Nested(Pair(torch.ones(size), other), (None, torch.zeros(2, size)), {"x": torch.arange(size)})


def test_a_form_is_shapes_types_and_everything_that_is_no_tensor():
    forms = [_form(value, []) for value in (nested(4), nested(4), nested(5), nested(4, 2))]
    assert forms[0] == forms[1]
    assert len({forms[0], forms[2], forms[3]}) == 3
    assert _form(torch.ones(2), []) != _form(torch.ones(2).long(), [])
    assert _form((torch.ones(2), None), []) != _form((torch.ones(2), torch.ones(2)), [])


def test_tensors_are_put_back_where_they_were():
    value = nested(4)
    filled = _filled(value, iter([tensor + 1 for tensor in _listed(value)]))
    assert isinstance(filled, Nested)
    assert filled.pair.one.tolist() == [2.0] * 4
    assert filled.pair.other == 3
    assert filled.rest[0] is None
    assert filled.rest[1].tolist() == [[1.0] * 4] * 2
    assert filled.named["x"].tolist() == [1, 2, 3, 4]


def test_copies_share_no_memory_and_expanded_tensors_are_written_out():
    tensors = [torch.arange(3).expand(2, 3), torch.rand(4), torch.arange(3) > 1]
    for one, other in zip(tensors, _copies(tensors), strict=True):
        assert torch.equal(one, other)
        assert one.data_ptr() != other.data_ptr()


def test_elsewhere_the_function_itself_is_called():
    called = Captured(lambda a, b: {"sum": a + b}, "cpu")
    for n in range(6):
        assert called(torch.ones(3), n)["sum"].tolist() == [n + 1.0] * 3
    assert called.recorded == 0


@pytest.mark.gpu
@cuda
def test_replayed_calls_heed_their_arguments_and_forms():
    calls = []

    def double(value: torch.Tensor, factor: int) -> tuple[torch.Tensor, None]:
        calls.append(factor)
        return value.sin() * factor, None

    captured = Captured(double, "cuda")
    for n in range(10):
        for size, factor in ((5, 2), (5, 3), (7, 2)):
            given = torch.full((size,), float(n), device="cuda")
            found, nothing = captured(given, factor)
            assert nothing is None
            assert torch.equal(found, given.sin() * factor)
    assert captured.recorded == 3
    assert len(calls) == 3 * 4  # three plain calls of each form and one that is recorded


@pytest.mark.gpu
@cuda
def test_gradients_and_dropout_are_replayed_afresh():
    weight = torch.ones(2000, device="cuda", requires_grad=True)

    def learn(given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        kept = torch.nn.functional.dropout(given * weight, 0.5)
        return kept.detach(), *torch.autograd.grad(kept.sum(), [weight])

    captured, found = Captured(learn, "cuda", fresh=True), []
    for seed in (1, 2, 3, 4, 5, 1, 6, 5):
        torch.manual_seed(seed)
        found.append(captured(torch.full((2000,), 3.0, device="cuda")))
    for kept, gradient in found:
        assert torch.equal(kept, gradient)
        assert 0.4 < float((kept > 0).float().mean()) < 0.6
    assert torch.equal(found[4][0], found[7][0])
    assert not torch.equal(found[4][0], found[6][0])
    assert torch.equal(found[0][0], found[5][0]), "the seed of a plain call gives the same in a replayed one"


@pytest.mark.gpu
@cuda
def test_another_thread_may_record_meanwhile():
    shared, wrong = Captured(lambda x: x.cumsum(0) * 2, "cuda", fresh=True), []

    def work(start: int) -> None:
        for n in range(start, start + 200):
            given = torch.full((1 + n % 5,), float(n), device="cuda")
            if not torch.equal(shared(given), given.cumsum(0) * 2):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(start,)) for start in (0, 1000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert shared.recorded == 5
