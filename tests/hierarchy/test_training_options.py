"""Candidates, histories and dropout of training steps, each checked on the input that a step gets."""

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch

from data.artifacts import sha256_file
from data.errors import UsageError
from graph.sampler import TemporalSampler
from graph.store import GraphStore, Relation
from hierarchy import train
from hierarchy.batches import DISLIKES
from hierarchy.bias import _OFFSETS, _SIZES, TOKEN_BIASES
from hierarchy.candidates import taken
from hierarchy.dropout import dropped
from hierarchy.losses.view_distillation import TeacherView
from hierarchy.objective import link_losses
from hierarchy.trainer import _teachers
from tests.hierarchy import small_learner as small

SELF_ONLY = {"recent": 0, "uniform": 0, "two_hop": 0, "links": 0}
FULL = {"full_softmax": 100, "item_budget": SELF_ONLY}


def _encoded(trainer, given, weights=None):
    return link_losses(trainer.student, trainer.passes(), given, weights or trainer.config.weights)


def _known(trainer, as_of):
    return int((trainer.batches.store.known_at("product") <= as_of).sum())


def test_full_softmax_is_the_cross_entropy_over_all_products_known_by_then(inputs):
    trainer = small.prepared(inputs, **FULL)
    given = trainer.draw(3)
    products = given.products
    assert torch.equal(products.nodes, torch.arange(trainer.visible["product"]))
    users = trainer.passes().encode(trainer.student.encoder, given.users)
    vectors = trainer.passes().encode(trainer.student.encoder, products.seeds)[:, 0]
    logits = trainer.student.link(users, vectors, products.log_degree)
    unknown = (products.nodes >= _known(trainer, given.edges.as_of))[None] & ~products.accidental
    target = torch.from_numpy(given.edges.product)
    losses = torch.nn.functional.cross_entropy(logits.masked_fill(unknown, -torch.inf), target, reduction="none")
    wanted = (losses * given.weight).sum() / given.weight.sum()
    assert _encoded(trainer, given)["link"].item() == pytest.approx(wanted.item(), rel=1e-5)


def test_what_nobody_engaged_with_is_no_negative(inputs):
    full, drawn = small.prepared(inputs, **FULL), small.prepared(inputs, negatives=2_000, item_budget=SELF_ONLY)
    never = torch.from_numpy(~np.isin(np.arange(full.visible["product"]), full.batches.edges.product))
    latest = max(range(20), key=lambda step: full.draw(step).products.known)
    products = full.draw(latest).products
    known = products.nodes < products.known
    assert (known & never).any(), "some product is known by then and has no edge"
    assert torch.isinf(products.log_expected[never]).all()
    assert not torch.isinf(products.log_expected[known & ~never]).any()
    assert not never[drawn.draw(latest).products.nodes].any()
    assert (drawn.batches.expected("product", torch.nonzero(never)[:, 0], 1000, 24, 16) == 0).all()


def test_many_sampled_negatives_come_near_the_full_softmax(inputs):
    full = small.prepared(inputs, **FULL)
    drawn = small.prepared(inputs, negatives=20_000, item_budget=SELF_ONLY)
    for step in (0, 5):
        one, other = (_encoded(trainer, trainer.draw(step))["link"].item() for trainer in (full, drawn))
        assert one == pytest.approx(other, abs=0.02)


def test_more_products_than_the_limit_are_sampled(inputs):
    trainer = small.prepared(inputs, full_softmax=10)
    assert len(trainer.draw(0).products.nodes) == trainer.config.batch_size + trainer.config.negatives


def test_many_candidates_are_encoded_in_pieces_with_the_same_gradient(inputs, monkeypatch):
    trainer = small.prepared(inputs, full_softmax=100)
    given, gradients = trainer.draw(3), []
    with torch.no_grad():
        for layer in trainer.student.encoder.layers:
            layer.attention.output.normal_(generator=torch.Generator().manual_seed(1))
    for piece in (1000, 17):
        monkeypatch.setattr("hierarchy.passes.PIECE", {"cpu": piece})
        trainer.student.zero_grad()
        _encoded(trainer, given)["link"].backward()
        gradients.append(trainer.student.encoder.content.grad.clone())
    assert torch.allclose(*gradients, atol=1e-6)
    assert gradients[0].abs().max() > 1e-3


def test_advertisers_that_fill_up_a_step_change_no_loss(inputs):
    """A batch names 1 to 5 of them; filled up, all steps have one form."""
    trainer = small.prepared(inputs, batch_size=8, id_dropout=0.0)
    sizes = set()
    for step in range(12):
        losses = []
        for trainer.batches.steady in (False, True):
            given = trainer.draw(step)
            losses.append(_encoded(trainer, given)["advertiser"].item())
            sizes.add((trainer.batches.steady, len(given.advertisers.nodes)))
        assert losses[0] == pytest.approx(losses[1], abs=1e-6)
    steady, free = (sum(one is kind for one, _ in sizes) for kind in (True, False))
    assert steady == 1 < free


@pytest.mark.parametrize("full", [False, True])
def test_known_products_of_a_user_are_no_negatives(inputs, full):
    trainer = small.prepared(inputs, mask_known=True, **(FULL if full else {}))
    given = trainer.draw(2)
    absent = trainer.miner.absent(given)
    edges = trainer.batches.edges
    pairs = set(zip(edges.user.tolist(), edges.product.tolist(), strict=True))
    wanted = [[(user, node) in pairs for node in given.products.nodes.tolist()] for user in given.edges.user.tolist()]
    assert absent.tolist() == wanted
    masked = link_losses(trainer.student, trainer.passes(), given, trainer.config.weights, absent)["link"]
    assert masked.item() < _encoded(trainer, given)["link"].item()


def test_nobody_asks_for_known_products_by_default(inputs):
    trainer = small.prepared(inputs)
    assert trainer.miner.absent(trainer.draw(0)) is None


def _with_dislikes(events: pa.Table) -> pa.Table:
    """Every fifth purchase was a no."""
    kinds = events["event_type"].to_pylist()
    bought = [row for row, kind in enumerate(kinds) if kind == "purchase"]
    for row in bought[::5]:
        kinds[row] = "not_interested"
    place = events.schema.get_field_index("event_type")
    column = pa.array(kinds, pa.string()).cast(events.schema.field("event_type").type)
    return events.set_column(place, events.schema.field("event_type"), column)


@pytest.fixture(scope="module")
def disliking(root):
    return small.shop(root, key="dislikes", edit=_with_dislikes)


def test_only_what_was_disliked_before_the_edge_is_an_explicit_negative(disliking):
    trainer = small.prepared(disliking, weights={"dislike": 1.0}, batch_size=64)
    csr = GraphStore.open(disliking["graph"]).csr(DISLIKES)
    for step in range(3):
        given = trainer.draw(step)
        rows = given.dislikes.rows.tolist()
        assert rows
        seen = csr.visible(given.edges.user, given.edges.ts)
        assert rows == np.flatnonzero(seen).tolist()
    assert Relation("user", "not_interested", "product") == DISLIKES


def test_learning_from_dislikes_pushes_them_away(disliking):
    """The same step again and again: the term falls, and is not there without its weight."""
    trainer = small.prepared(
        disliking, weights={"dislike": 1.0, "link": 0.0, "advertiser": 0.0}, batch_size=64, steps=60
    )
    given, losses = trainer.draw(1), []
    for _ in range(30):
        terms = _encoded(trainer, given)
        losses.append(terms["dislike"].item())
        small.descend(trainer, terms)
    assert set(terms) == {"dislike"}
    assert losses[-1] < 0.7 * losses[0]
    plain = small.prepared(disliking)
    assert plain.draw(1).dislikes is None


def test_a_shop_without_dislikes_has_no_such_term(inputs):
    trainer = small.prepared(inputs, weights={"dislike": 1.0})
    assert trainer.draw(0).dislikes is None
    assert "dislike" not in _encoded(trainer, trainer.draw(0))


def _at_one_moment(events: pa.Table) -> pa.Table:
    """All events before t0 at its eve, as in sets without a clock."""
    eve = small.before(small.T0) - 1_000_000
    for name in ("ts", "known_at"):
        place, field = events.schema.get_field_index(name), events.schema.field(name)
        events = events.set_column(
            place,
            field,
            pc.if_else(pc.less(events[name].cast(pa.int64()), eve), eve, events[name].cast(pa.int64())).cast(
                field.type
            ),
        )
    return events


@pytest.fixture(scope="module")
def timeless(root):
    return small.shop(root, until=small.before(small.T0), key="timeless", edit=_at_one_moment)


def test_without_a_clock_users_are_made_of_their_other_edges(timeless):
    before, others = (small.prepared(timeless, history=kind) for kind in ("before", "others"))
    blind, given = before.draw(0), others.draw(0)
    assert not blind.users.history.any()
    assert given.users.history.any(dim=1).float().mean() > 0.8
    tokens = given.user_tokens
    asked = (tokens.node == given.products.nodes[given.products.targets][:, None]) & (tokens.node_type == 1)
    assert not (asked & tokens.mask & (tokens.hop == 1)).any()
    product_tokens = given.products.tokens
    own = torch.arange(len(given.user))
    asking = (product_tokens.node[own] == given.user[:, None]) & (product_tokens.node_type[own] == 0)
    assert not (asking & product_tokens.mask[own]).any()


def test_without_a_clock_an_epoch_is_still_one_pass(timeless):
    edges = small.prepared(timeless, history="others").batches.edges
    seen = [edges.batch(step, 32) for step in range(len(edges) // 32)]
    pairs = [(u, p) for batch in seen for u, p in zip(batch.user.tolist(), batch.product.tolist(), strict=True)]
    rows = list(zip(edges.user.tolist(), edges.product.tolist(), strict=True))
    assert len(pairs) == len(edges) // 32 * 32
    assert all(pairs.count(pair) <= rows.count(pair) for pair in set(pairs))


def test_others_and_all_candidates_would_show_the_target_through_the_product(timeless):
    with pytest.raises(UsageError, match="would show the edge"):
        small.prepared(timeless, history="others", full_softmax=100)
    small.prepared(timeless, history="others", **FULL)


def test_a_learner_without_a_clock_trains_twice_to_equal_files(root, timeless):
    changes = {"history": "others", "mask_known": True, "clip_norm": 1.0, "weight_decay": 0.01, **FULL}
    one, other = (small.trained(root, timeless, f"timeless{number}", **changes) for number in range(2))
    assert sha256_file(one.file("model.safetensors")) == sha256_file(other.file("model.safetensors"))


def test_without_a_clock_a_held_out_edge_is_hidden_from_its_user(timeless, monkeypatch):
    """Users are asked with all their edges but the one in question."""
    trainer = small.prepared(timeless, history="others", validation={"every": 1, "users": 15}, mask_known=True)
    asked, real = [], TemporalSampler.sample

    def watched(self, kind, nodes, times, seed, exclude=None, exclude_type=None):
        if kind == "user":
            asked.append(exclude[:15].tolist())
        return real(self, kind, nodes, times, seed, exclude, exclude_type)

    monkeypatch.setattr(TemporalSampler, "sample", watched)
    held = trainer.held_out
    assert 0 <= held.recall(trainer.teacher, trainer.prototypes) <= 1
    assert asked == [held.edges.product.tolist()]
    assert len(np.unique(held.edges.user)) == 15
    assert set(held.edges.user) <= set(trainer.batches.edges.user)


def test_dropped_tokens_are_gone_for_attention_and_history_and_repeat_with_the_step(inputs):
    trainer = small.prepared(inputs, token_dropout=0.5)
    full, half = small.prepared(inputs).draw(1).users, trainer.draw(1).users
    assert 0.3 < half.mask.sum() / full.mask.sum() < 0.7
    assert not (half.mask & ~full.mask).any()
    assert torch.equal(half.history, full.history & half.mask)
    assert torch.equal(half.mask, trainer.draw(1).users.mask)
    assert not torch.equal(half.mask, dropped(full, 0.0, 0.5, torch.Generator().manual_seed(0)).mask)


def test_epochs_count_passes_over_the_edges(inputs):
    trainer = small.prepared(inputs, epochs=2.0, batch_size=32)
    assert trainer.steps == round(2 * (len(trainer.batches.edges) // 32))
    assert small.prepared(inputs).steps == small.CONFIG["steps"]


def test_decay_shrinks_maps_and_ids_apart_and_nothing_else(inputs):
    groups = small.prepared(inputs, weight_decay=0.1, id_weight_decay=0.2).optimizer.param_groups
    trainer = small.prepared(inputs, weight_decay=0.1, id_weight_decay=0.2)
    groups = {id(p): group["weight_decay"] for group in trainer.optimizer.param_groups for p in group["params"]}
    decay = {name: groups[id(parameter)] for name, parameter in trainer.student.named_parameters()}
    assert decay["encoder.source_ids"] == decay["encoder.target_ids"] == 0.2
    assert decay["encoder.content"] == decay["encoder.layers.0.attention.output"] == 0.1
    assert decay["encoder.bias.table"] == decay["link.popularity"] == decay["encoder.layers.0.before_mlp.weight"] == 0.0
    assert len(decay) == len(groups)


def test_a_gradient_is_cut_to_the_given_norm(inputs):
    trainer = small.prepared(inputs, clip_norm=1e-3)
    small.descend(trainer, _encoded(trainer, trainer.draw(0)))
    norms = [p.grad.norm() for p in trainer.student.parameters() if p.grad is not None]
    assert torch.stack(norms).norm().item() == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize("name", ["edge_type", "hop", "age", "degree", "walk"])
def test_a_bias_that_is_off_stays_zero(inputs, name):
    """And the others learn."""
    trainer = small.prepared(inputs, bias_off=(name,), warmup_steps=2)
    for step in range(4):
        trainer.step(step, trainer.draw(step))
    table = trainer.student.encoder.bias.table.detach()
    place = TOKEN_BIASES.index(name)
    off = slice(_OFFSETS[place], _OFFSETS[place] + _SIZES[place])
    assert table[off].abs().max() == 0
    assert table.abs().max() > 0


def test_biases_of_primitives_can_be_left_out(inputs):
    for off, zero in ((("level",), "level"), (("mass",), "mass_scale")):
        trainer = small.prepared(inputs, bias_off=off, warmup_steps=2)
        for step in range(5):
            trainer.step(step, trainer.draw(step))
        biases = [layer.hub_bias for layer in trainer.student.encoder.layers]
        assert all(getattr(bias, zero).abs().max() == 0 for bias in biases)
        other = "mass_scale" if zero == "level" else "level"
        assert any(getattr(bias, other).abs().max() > 0 for bias in biases)


def test_terms_of_weight_zero_are_not_computed(inputs, monkeypatch):
    weights = {"link": 0.0, "advertiser": 0.0, "distillation": 1.0, "consistency": 0.0}
    trainer = small.prepared(inputs, weights=weights)
    given = trainer.draw(0)
    assert len(given.products.nodes) == trainer.config.batch_size
    assert _encoded(trainer, given) == {}
    trainer = small.prepared(inputs, weights={"distillation": 0.0, "consistency": 0.0}, warmup_steps=1)
    calls = []
    monkeypatch.setattr("hierarchy.objective.distillation_loss", lambda *given: calls.append(given))
    born = None
    for step in range(4):
        terms = trainer.step(step, trainer.draw(step))
        assert not set(terms) & {"distillation", "consistency", "distillation_1"}
        born = trainer.prototypes.vectors(0).clone() if step == 1 else born
    assert not calls
    assert not torch.equal(born, trainer.prototypes.vectors(0))


def test_nothing_to_learn_is_refused(inputs):
    weights = dict.fromkeys(("link", "advertiser", "distillation", "consistency"), 0.0)
    with pytest.raises(UsageError, match="nothing learns"):
        train.prepare(train.Config(**{**small.CONFIG, "weights": weights}), inputs, None)
    with pytest.raises(UsageError, match="did you mean 'degree'"):
        small.prepared(inputs, bias_off=("degrees",))


def test_a_step_with_a_teacher_view_pulls_its_neighbourhoods_in(inputs):
    trainer = small.prepared(inputs)
    vectors = np.random.default_rng(0).standard_normal((trainer.visible["product"], 5)).astype(np.float32)
    table = trainer.batches.table
    trainer.batches.table = dataclasses.replace(table, teachers=(TeacherView("spectral", vectors, vectors),))
    config = train.Config(**{**small.CONFIG, "teaching": {"views": ("spectral",)}})
    teachers = _teachers(config, trainer.batches)
    given, losses = trainer.draw(2), []
    for _ in range(25):
        terms = link_losses(trainer.student, trainer.passes(), given, config.weights, None, config.teaching, teachers)
        losses.append(terms["teachers"].item())
        small.descend(trainer, {"teachers": terms["teachers"]})
    assert losses[-1] < 0.8 * losses[0]
    with pytest.raises(UsageError, match="did you mean 'spectral'"):
        _teachers(
            config.model_copy(update={"teaching": config.teaching.model_copy(update={"views": ("spectra",)})}),
            trainer.batches,
        )


@pytest.mark.parametrize("full", [False, True])
def test_distillation_also_sees_products_that_no_edge_of_the_batch_brought(inputs, full):
    found = {}
    for uniform in (0.0, 0.5):
        settings = {**small.CONFIG["distillation"], "uniform": uniform}
        trainer = small.prepared(inputs, distillation=settings, **(FULL if full else {}))
        trainer._give_birth()
        passes = trainer.passes(trainer.prototypes)
        given = trainer.draw(3)
        found[uniform] = trainer._learn(given, None, trainer._others(4, given), "content", False, True, 0)[1].vectors
        brought = passes.encode(trainer.teacher.encoder, taken(given.products.seeds, given.products.targets))[:, 0]
        every = passes.encode(trainer.teacher.encoder, given.products.seeds)[:, 0]
        ours = found[uniform][12:24]
        assert (ours @ every.t()).amax(dim=1).min() > 1 - 1e-5
        assert int(((ours @ brought.t()).amax(dim=1) > 1 - 1e-5).sum()) >= 12 - round(12 * uniform)
    assert torch.allclose(found[0.0][:18], found[0.5][:18], atol=1e-5)
    assert not torch.allclose(found[0.0][18:24], found[0.5][18:24], atol=1e-2)


def test_repeats_learn_at_a_rate_of_their_own(inputs):
    trainer = small.prepared(inputs, repeat_lr=0.5, bias_lr=1e-3)
    rates = {id(parameter): group["peak"] for group in trainer.optimizer.param_groups for parameter in group["params"]}
    link = trainer.student.link
    assert rates[id(link.repeat)] == 0.5
    assert rates[id(link.popularity)] == 1e-3


def test_an_epoch_is_counted_without_what_is_held_out(inputs):
    edges = small.prepared(inputs).batches.edges
    assert edges.per_epoch(1) == len(edges)
    taken = edges.hold_out(5)
    assert len(taken.user) > 0
    assert edges.per_epoch(1) == len(edges)
