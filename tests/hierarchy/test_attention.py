import pytest
import torch

from graph.sampler import TokenSet
from hierarchy.attention import LatentAttention, softmax_with_silence
from hierarchy.bias import AGE_BUCKETS, BIAS_ROWS, BiasTables, HubBias, bias_index


def _layer(dim: int = 8, heads: int = 2) -> LatentAttention:
    torch.manual_seed(0)
    layer = LatentAttention(dim, heads)
    torch.nn.init.normal_(layer.output)
    return layer


def _inputs(batch: int = 3, tokens: int = 5, dim: int = 8, heads: int = 2) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(1)
    shapes = ((batch, 2, dim), (batch, tokens, dim), (batch, heads, tokens))
    return tuple(torch.randn(shape, generator=generator) for shape in shapes)


def test_equals_attention_with_projected_keys_and_values():
    layer, (query, tokens, bias) = _layer(), _inputs()
    mask = torch.ones(3, 5, dtype=torch.bool)
    keys = torch.einsum("btd,hed->bhte", tokens, layer.key)
    values = torch.einsum("btd,hed->bhte", tokens, layer.value)
    queries = torch.einsum("bqd,hed->bhqe", query, layer.query)
    logits = queries @ keys.mT / layer.head_dim**0.5 + bias[:, :, None]
    weights = logits.exp() / (1 + logits.exp().sum(-1, keepdim=True))
    expected = (weights @ values).transpose(1, 2).reshape(3, 2, 8) @ layer.output
    assert torch.allclose(layer(query, tokens, bias, mask), expected, atol=1e-5)


def test_masked_tokens_do_not_matter_however_large():
    layer, (query, tokens, bias) = _layer(), _inputs()
    mask = torch.tensor([[True, True, False, True, False]] * 3)
    clean = layer(query, tokens, bias, mask)
    tokens[:, [2, 4]], bias[:, :, [2, 4]] = 1e30, 1e30
    assert torch.equal(layer(query, tokens, bias, mask), clean)


def test_no_tokens_at_all_give_zeros_and_finite_gradients():
    layer, (query, tokens, bias) = _layer(), _inputs()
    query.requires_grad_()
    found = layer(query, tokens, bias, torch.zeros(3, 5, dtype=torch.bool))
    found.sum().backward()
    assert torch.equal(found, torch.zeros_like(found))
    assert torch.isfinite(query.grad).all()
    assert layer(query, tokens[:, :0], bias[:, :, :0], torch.zeros(3, 0, dtype=torch.bool)).abs().sum() == 0


def test_bias_steers_attention():
    layer, (query, tokens, bias) = _layer(), _inputs()
    mask = torch.ones(3, 5, dtype=torch.bool)
    bias = torch.zeros_like(bias)
    bias[:, :, 3] = 50.0
    only = layer(query, tokens[:, 3:4], torch.full((3, 2, 1), 50.0), mask[:, :1])
    assert torch.allclose(layer(query, tokens, bias, mask), only, atol=1e-4)


def test_dim_must_be_divisible_by_heads():
    with pytest.raises(ValueError, match="divisible"):
        LatentAttention(6, 4)


def test_silence_takes_its_share():
    assert softmax_with_silence(torch.zeros(1, 3)).tolist() == [[0.25] * 3]
    assert softmax_with_silence(torch.full((1, 2), -torch.inf)).tolist() == [[0.0, 0.0]]


def _tokens(age: list[int]) -> TokenSet:
    shape = (1, len(age))
    return TokenSet(
        torch.zeros(shape, dtype=torch.int8),
        torch.zeros(shape, dtype=torch.int64),
        torch.full(shape, -1, dtype=torch.int16),
        torch.ones(shape, dtype=torch.int8),
        torch.tensor([age]),
        torch.full(shape, 3.0),
        torch.full(shape, 1e-9),
        torch.ones(shape, dtype=torch.bool),
    )


def test_every_token_has_rows_inside_the_table():
    year = 365 * 24 * 3_600_000_000
    index = bias_index(_tokens([-1, 0, year, 1000 * year]))
    assert index.shape == (1, 4, 6)
    assert index.min() >= 0
    assert index.max() < BIAS_ROWS


def test_timeless_links_share_a_bucket_that_no_event_has():
    hour = 3_600_000_000
    age = bias_index(_tokens([-1, 0, 3 * hour, 10**16]))[0, :, 2]
    assert len(set(age.tolist())) == 4
    assert age[0] == age[1] + AGE_BUCKETS - 1


def test_tables_start_at_zero_and_add_their_rows():
    tables = BiasTables(3)
    index = bias_index(_tokens([-1, 5]))
    assert tables(index).abs().sum() == 0
    with torch.no_grad():
        tables.table[index[0, 0, 2]] = torch.tensor([1.0, 2.0, 3.0])
    assert tables(index)[0, :, 0].tolist() == [1.0, 2.0, 3.0]
    assert tables(index)[0, :, 1].abs().sum() == 0


def test_hub_bias_depends_on_level_and_mass():
    bias = HubBias(2, 3)
    with torch.no_grad():
        bias.level[1] = 1.0
        bias.mass_scale.fill_(2.0)
    found = bias(torch.tensor([0, 1]), torch.tensor([[0.5, 0.25]]))
    assert found.tolist() == [[[1.0, 1.5]] * 3]
