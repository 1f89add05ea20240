"""DIN's and HSTU's attention against the papers' formulas, written out one sequence at a time in fp64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from kernels.jagged import Jagged
from ranking.baselines.din import ActivationUnit, Dice
from ranking.baselines.hstu import Context, Layer
from ranking.batch import NUM_GAPS
from ranking.tokenization import Groups

WIDTH, HEADS, LENGTH = 8, 2, 5


def _alone(layer: Layer, sequence: Tensor, gap: Tensor) -> Tensor:
    """One layer over history and candidate as one sequence (T + 1, d) under a causal mask: equations 1 to 3."""
    count = len(sequence)
    gate, value, query, key = F.silu(layer.project(layer.norm(sequence))).chunk(4, dim=1)
    read = []
    for place in range(count):
        heads = []
        for head in range(HEADS):
            part = slice(head * WIDTH // HEADS, (head + 1) * WIDTH // HEADS)
            total = torch.zeros(WIDTH // HEADS, dtype=torch.float64)
            for past in range(place + 1):
                bias = layer.bias.distance.weight[place - past, head]
                bias = bias + layer.bias.time.weight[gap[place] * (NUM_GAPS + 1) + gap[past], head]
                total = total + F.silu(query[place, part] @ key[past, part] + bias) * value[past, part]
            heads.append(total / (LENGTH + 1))
        read.append(torch.cat(heads))
    return sequence + layer.out(layer.attended_norm(torch.stack(read)) * gate)


def test_candidates_that_share_a_pass_score_as_if_each_ended_its_own_sequence() -> None:
    torch.manual_seed(0)
    layers = [Layer(WIDTH, HEADS, LENGTH, 0.0).double() for _ in range(2)]
    lengths, visit = torch.tensor([5, 0, 2]), torch.tensor([0, 2, 0, 0, 1, 0, 0, 2])
    values, gaps = torch.randn(7, WIDTH, dtype=torch.float64), torch.randint(0, NUM_GAPS, (7,))
    candidates = torch.randn(8, WIDTH, dtype=torch.float64)
    history = Jagged.from_lengths(values, lengths, LENGTH)
    context = Context(history.with_values(gaps).to_padded().long(), history.mask(), Groups.of(visit))
    past, state = history.to_padded(), candidates
    for number, layer in enumerate(layers):
        past, state = layer(past, state, context, last=number == 1)
    for row, owner in enumerate(visit.tolist()):
        start, end = history.offsets[owner : owner + 2].tolist()
        sequence = torch.cat([values[start:end], candidates[row : row + 1]])
        gap = torch.cat([gaps[start:end], torch.tensor([NUM_GAPS])])
        for layer in layers:
            sequence = _alone(layer, sequence, gap)
        assert torch.allclose(state[row], sequence[-1], atol=1e-12)


def test_the_activation_unit_is_a_layer_over_both_their_difference_and_their_product() -> None:
    torch.manual_seed(0)
    unit = ActivationUnit(4, 3).double().eval()
    both, bias = torch.randn(3, 16, dtype=torch.float64), torch.randn(3, dtype=torch.float64)
    out = torch.randn(1, 3, dtype=torch.float64)
    first, second, difference, product = both.chunk(4, dim=1)
    state = {"candidate.weight": first + difference, "candidate.bias": bias, "event.weight": second - difference}
    unit.load_state_dict(unit.state_dict() | state | {"both.weight": product, "out.weight": out})
    candidate, event = torch.randn(3, 4, dtype=torch.float64), torch.randn(5, 4, dtype=torch.float64)
    row, place = torch.tensor([0, 0, 2, 1]), torch.tensor([1, 4, 0, 0])
    q, k = candidate[row], event[place]
    expected = unit.dice(torch.cat([q, k, q - k, q * k], dim=1) @ both.T + bias) @ out[0]
    assert torch.allclose(unit(candidate, event, row, place), expected, atol=1e-12)


def test_dice_standardises_by_the_batch_in_training_and_by_the_past_in_scoring() -> None:
    torch.manual_seed(0)
    dice = Dice(3)
    torch.nn.init.constant_(dice.alpha, 0.25)
    x = 3 + 2 * torch.randn(500, 3)
    gate = torch.sigmoid((x - x.mean(0)) / (x.var(0, unbiased=False) + 1e-8).sqrt())
    assert torch.allclose(dice(x), gate * x + (1 - gate) * 0.25 * x, atol=1e-5)
    for _ in range(60):
        dice(x)
    assert dice.mean == pytest.approx(x.mean(0).numpy(), rel=0.01)
    dice.eval()
    assert torch.equal(dice(x[:1]), dice(x)[:1])
    assert torch.allclose(dice(x), gate * x + (1 - gate) * 0.25 * x, atol=0.05)
