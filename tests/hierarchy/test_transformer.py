import dataclasses

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from data.artifacts import Store
from graph.store import GraphStore
from hierarchy.batches import make_samplers
from hierarchy.content import open_content
from hierarchy.prototypes import Prototypes
from hierarchy.seeds import VIEWS, Seeds, from_content, sample_seeds
from hierarchy.train import Config
from hierarchy.transformer import EncoderShape, InterestEncoder
from tests.hierarchy import small_learner as small


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    inputs = small.shop(Store(tmp_path_factory.mktemp("store")))
    graph = GraphStore.open(inputs["graph"])
    known = {"product": graph.entity_ids("product").slice(0, 40), "advertiser": graph.entity_ids("advertiser")}
    config = Config(**small.CONFIG)
    samplers = make_samplers(graph, config.user_budget, config.item_budget)
    return graph, open_content(inputs["features"], graph, known), samplers


def _encoder(table, dim: int = 12, trained: bool = False) -> InterestEncoder:
    torch.manual_seed(0)
    rows = int(table.id_rows.max())
    encoder = InterestEncoder(EncoderShape(table.content_dim, dim, 2, 2, rows, 1, 2)).requires_grad_(False)
    if trained:
        for name, parameter in encoder.named_parameters():
            if "norm" not in name and "before" not in name:
                parameter.add_(0.1 * torch.randn(parameter.shape))
        encoder.source_ids[0] = 0.0
        encoder.target_ids[0] = 0.0
    return encoder


def _primitives() -> Prototypes:
    made = Prototypes((4, 8), 12, 2, 2)
    made.initialise(normalize(torch.randn(50, 12, generator=torch.Generator().manual_seed(0)), dim=1), seed=0)
    made.join()
    return made


def _seeds(shop, kind: str, count: int = 9):
    graph, table, samplers = shop
    nodes = np.arange(min(count, graph.num_nodes[kind]))
    return sample_seeds(table, samplers[kind], kind, nodes, np.full(len(nodes), small.before(small.T1)), seed=5)


def _same_tokens(seeds: Seeds, **changes) -> Seeds:
    return dataclasses.replace(seeds, **changes)


def test_step_zero_of_items_is_their_content(shop):
    seeds, _ = _seeds(shop, "product")
    found = _encoder(shop[1])(seeds, _primitives())[:, 0]
    assert torch.allclose(found, seeds.content[:, : small.CONTENT_DIM], atol=1e-6)


def test_step_zero_of_users_is_the_mean_content_of_their_history(shop):
    seeds, _ = _seeds(shop, "user")
    history = seeds.history[..., None] * seeds.token_content[..., : small.CONTENT_DIM]
    found = _encoder(shop[1])(seeds, _primitives())[:, 0]
    assert seeds.history.any(dim=1).all()
    assert torch.allclose(found, normalize(history.sum(dim=1), dim=1), atol=1e-5)


def test_a_wider_space_than_content_starts_as_content_too(shop):
    seeds, _ = _seeds(shop, "product")
    found = _encoder(shop[1], dim=20)(seeds)[:, 0]
    assert torch.allclose(found[:, : small.CONTENT_DIM], seeds.content[:, : small.CONTENT_DIM], atol=1e-6)
    assert found[:, small.CONTENT_DIM :].abs().sum() == 0


@pytest.mark.parametrize("kind", ["user", "product", "advertiser"])
def test_vectors_are_unit_even_where_nothing_is_known(shop, kind):
    seeds, _ = _seeds(shop, kind)
    nothing = _same_tokens(
        seeds,
        content=torch.zeros_like(seeds.content),
        id_row=torch.zeros_like(seeds.id_row),
        mask=torch.zeros_like(seeds.mask),
        history=torch.zeros_like(seeds.history),
    )
    for given in (seeds, nothing):
        norms = _encoder(shop[1], trained=True)(given).norm(dim=-1)
        assert torch.allclose(norms, torch.ones_like(norms), atol=1e-5)
    blank = _encoder(shop[1])(nothing)
    assert torch.isfinite(blank).all()
    assert torch.allclose(blank.norm(dim=-1), torch.ones(len(seeds), 1), atol=1e-5)


def test_hub_tokens_change_the_vectors(shop):
    seeds, _ = _seeds(shop, "product")
    encoder = _encoder(shop[1], trained=True)
    without, primitives = encoder(seeds), _primitives()
    with_hubs = encoder(seeds, primitives)
    assert (without - with_hubs).abs().max() > 1e-3
    primitives.vectors(1).neg_()
    assert (encoder(seeds, primitives) - with_hubs).abs().max() > 1e-4


@pytest.mark.parametrize("kind", ["user", "product"])
def test_masked_tokens_do_not_matter(shop, kind):
    seeds, _ = _seeds(shop, kind)
    encoder, padding = _encoder(shop[1], trained=True), ~seeds.mask
    assert padding.any()
    poisoned = torch.where(padding[..., None], torch.tensor(1e15), seeds.token_content)
    clean = encoder(seeds, _primitives())
    assert torch.equal(encoder(_same_tokens(seeds, token_content=poisoned), _primitives()), clean)


def test_a_vector_does_not_depend_on_its_company(shop):
    """Equal to 1e-6: a matrix product's last bits may depend on its shape, which `encode_nodes` keeps fixed."""
    seeds, _ = _seeds(shop, "product", count=9)
    alone, _ = _seeds(shop, "product", count=1)
    encoder = _encoder(shop[1], trained=True)
    assert torch.allclose(encoder(alone, _primitives())[0], encoder(seeds, _primitives())[0], atol=1e-6)


def test_several_user_heads_start_together_and_learn_apart(shop):
    torch.manual_seed(0)
    encoder = InterestEncoder(EncoderShape(shop[1].content_dim, 12, 2, 2, 99, 3, 2))
    seeds, _ = _seeds(shop, "user")
    heads = encoder(seeds, latents=3)
    assert heads.shape == (9, 3, 12)
    assert torch.allclose(heads[:, 0], heads[:, 2], atol=1e-6)
    optimizer = torch.optim.SGD(encoder.parameters(), lr=1.0)
    target = torch.randn(9, 3, 12, generator=torch.Generator().manual_seed(1))
    for _ in range(3):
        optimizer.zero_grad()
        (-(encoder(seeds, latents=3) * target).sum()).backward()
        optimizer.step()
    heads = encoder(seeds, latents=3)
    assert (heads[:, 0] - heads[:, 2]).abs().max() > 1e-4


def test_ids_belong_to_known_products_and_advertisers_alone(shop):
    graph, table, _ = shop
    rows = table.id_rows.numpy()
    for kind, count in (("user", 0), ("product", 40), ("category", 0), ("advertiser", graph.num_nodes["advertiser"])):
        own = rows[table.rows(kind, np.arange(graph.num_nodes[kind])).numpy()]
        assert (own > 0).sum() == count
    assert len(np.unique(rows[rows > 0])) == (rows > 0).sum()


def test_text_alone_takes_the_path_of_an_unknown_product(shop):
    seeds, _ = _seeds(shop, "product")
    encoder, primitives = _encoder(shop[1], trained=True), _primitives()
    bare = _same_tokens(seeds, id_row=torch.zeros_like(seeds.id_row), mask=torch.zeros_like(seeds.mask))
    content = seeds.content[:, : small.CONTENT_DIM].numpy()
    assert torch.allclose(encoder(from_content(content, "product"), primitives), encoder(bare, primitives), atol=1e-6)


def test_id_dropout_drops_about_its_share_and_repeats_with_its_seed(shop):
    seeds, _ = _seeds(shop, "user", count=50)
    dropped = [seeds.with_ids_dropped(0.4, torch.Generator().manual_seed(3)) for _ in range(2)]
    assert torch.equal(dropped[0].token_id_row, dropped[1].token_id_row)
    had, has = seeds.token_id_row > 0, dropped[0].token_id_row > 0
    assert 0.5 < has.sum() / had.sum() < 0.7
    assert not (has & ~had).any()


def test_student_views_hide_what_they_say(shop):
    for kind in ("user", "product"):
        seeds, tokens = _seeds(shop, kind)
        content, engagement, early = (VIEWS[name](seeds, tokens) for name in ("content", "engagement", "early"))
        timeless = tokens.age < 0
        assert not (content.mask & ~timeless).any()
        assert content.token_id_row.sum() == 0
        assert content.id_row.sum() == 0
        assert not (engagement.mask & timeless).any()
        assert engagement.content.abs().sum() == 0
        assert early.mask.sum() < seeds.mask.sum()
        assert (early.history & ~seeds.history).sum() == 0
        assert torch.equal(content.history, seeds.history)


@pytest.mark.parametrize("kind", ["product", "user"])
def test_gated_fusion_starts_as_the_fused_content(shop, tmp_path, kind):
    graph, table, samplers = shop
    features = small.shop(Store(tmp_path))["features"]
    gated = open_content(features, graph, gated=True)
    assert gated.content_dim == table.content_dim
    assert gated.gate == (("text", 1.0), ("image", 1.0))
    nodes = np.arange(9)
    times = np.full(9, small.before(small.T1))
    plain = open_content(features, graph)
    shape = EncoderShape(table.content_dim, 12, 2, 2, 0, 1, 2)
    found = []
    for each, gate in ((plain, ()), (gated, gated.gate)):
        torch.manual_seed(0)
        encoder = InterestEncoder(dataclasses.replace(shape, gate=gate)).requires_grad_(False)
        found.append(encoder(sample_seeds(each, samplers[kind], kind, nodes, times, seed=5)[0], _primitives()))
    assert torch.allclose(*found, atol=1e-5)
