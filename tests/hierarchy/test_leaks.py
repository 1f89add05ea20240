"""Canaries for leaks of time: planted in the future, in shuffled times, in the edge that is asked for, in a batch."""

import dataclasses

import numpy as np
import pyarrow.compute as pc
import pytest

import graph.build
from data.artifacts import Store
from data.context import RunContext
from data.generator import write
from data.generator.config import Config
from data.schema import MICROS_PER_DAY
from graph.store import NODE_TYPES, GraphStore
from hierarchy import batches
from hierarchy.inference import FrozenLearner
from hierarchy.purchases import History, history_at, products_with_events
from tests.benchmarks.retrieval_quality import learner
from tests.fixtures.artifacts import make_ref
from tests.hierarchy import small_learner as small

CONFIG = Config(users=200, products=150, events=40_000, days=20, canaries=2000, canary_day=12)
LIMIT = CONFIG.midnight(CONFIG.canary_day)


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """The graph of a log with canaries, and of the same log without."""
    store = Store(tmp_path_factory.mktemp("leaks"))

    def made(config, key):
        inputs = {"events": make_ref(store, "events", lambda out: write.artifact(config, out), key)}
        run, options = graph.build.run, graph.build.Config()
        return GraphStore.open(
            make_ref(store, "graph", lambda out: run(options, inputs, out, RunContext(threads=1)), key)
        )

    return made(CONFIG, "planted"), made(CONFIG.model_copy(update={"canaries": 0}), "clean")


@pytest.mark.parametrize("event_type", ["view", "click", "purchase"])
def test_popularity_and_recency_are_those_of_the_log_without_canaries(stores, event_type):
    planted, clean = (history_at(store, event_type, LIMIT - 1) for store in stores)
    assert len(planted.age) == len(clean.age) > 150
    np.testing.assert_array_equal(np.sort(planted.age), np.sort(clean.age))
    for window in (None, 7.0):
        one, other = planted.popularity(window), clean.popularity(window)
        np.testing.assert_array_equal(one[: len(other)][other > 0], other[other > 0])
        assert one.sum() == other.sum()


def test_a_canary_has_no_event_before_its_time_and_has_some_after(stores):
    store = stores[0]
    canary = pc.starts_with(store.entity_ids("product"), "canary").to_numpy(zero_copy_only=False)
    assert not products_with_events(store, LIMIT - 1)[canary].any()
    assert products_with_events(store, LIMIT + 10**13)[canary].all()
    assert history_at(store, "purchase", LIMIT + 10**13).popularity()[canary].sum() > 10


RING, USERS, EVENTS = 12, 150, 25
WALKER = {
    "dim": 16, "heads": 2, "layers": 0, "epochs": 8.0, "batch_size": 256, "precision": "fp32", "dropout": 0.0,
    "user_budget": {"recent": 24}, "history_decay": 0.3, "structure": {"spectral": 0, "directional": 12},
    "repeats": False, "levels": [{"k": 2, "top": 1}],
}  # fmt: skip


def walks(shuffled):
    """Everybody goes round a ring of products, with jumps: who had what says nothing, only what came last does.

    A history without each user's last event, and that event's product (users,).
    """
    rng = np.random.default_rng(0)
    jumps = np.where(rng.random((USERS, EVENTS)) < 0.7, 1, rng.integers(0, RING, (USERS, EVENTS)))
    products = (rng.integers(0, RING, (USERS, 1)) + jumps.cumsum(axis=1)) % RING
    if shuffled:
        products = rng.permuted(products, axis=1)
    user = np.repeat(np.arange(USERS), EVENTS - 1)
    age = np.tile(np.arange(EVENTS - 1.0)[::-1], USERS)
    return History(user, products[:, :-1].ravel(), age, USERS, RING), products[:, -1]


def found_first(history, targets):
    """Share of the users whose next product a learner of `history` ranks first, and that of popularity."""
    scorer = learner.fit(history, None, "order", WALKER, 0, "cpu")
    first = scorer.scores(np.arange(USERS)).argmax(axis=1)
    return (first == targets).mean(), (targets == history.popularity().argmax()).mean()


def test_with_times_shuffled_within_users_a_world_of_sequences_is_as_hard_as_guessing(monkeypatch):
    # Primitives of a dozen products may be duplicates: what is asked here is retrieval.
    monkeypatch.setattr("hierarchy.train.require_alive", lambda *of: [])
    in_order, popular = found_first(*walks(shuffled=False))
    assert in_order > 0.6 > 3 * popular
    shuffled, popular = found_first(*walks(shuffled=True))
    chance = max(popular, 1 / RING)
    assert shuffled < chance + 3 * np.sqrt(chance * (1 - chance) / USERS)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return Store(tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="module")
def inputs(root):
    return small.shop(root)


def first_seen(store):
    """When each pair of user and product, and each product, could first be read of [us], by their numbers."""
    pairs, products = {}, {}
    for relation in store.relations:
        if relation.src == "user" and relation.dst == "product":
            events = store.csr(relation)
            users = np.repeat(np.arange(len(events.rowptr) - 1), np.diff(events.rowptr))
            for user, product, time in zip(
                users.tolist(), events.col.tolist(), events.visible_from.tolist(), strict=True
            ):
                pairs[user, product] = min(time, pairs.get((user, product), time))
                products[product] = min(time, products.get(product, time))
    return pairs, products


def tokens_of(tokens, hop, kind):
    """Row and node of the tokens of a hop and a node type."""
    rows, places = np.nonzero(
        (tokens.mask & (tokens.hop == hop) & (tokens.node_type == NODE_TYPES.index(kind))).numpy()
    )
    return rows.tolist(), tokens.node.numpy()[rows, places].tolist()


def later_than_their_row(given, seen):
    """Tokens of a step's input, per place, that nobody could have read of at the time of their row."""
    pairs, products = seen
    edges, late = given.edges, {"history": 0, "buyers": 0, "co-engaged": 0}
    for row, node in zip(*tokens_of(given.user_tokens, 1, "product"), strict=True):
        late["history"] += pairs[int(edges.user[row]), node] > edges.ts[row]
    of_products, nodes = given.products.tokens, given.products.nodes.tolist()
    for row, node in zip(*tokens_of(of_products, 1, "user"), strict=True):
        late["buyers"] += pairs[node, nodes[row]] > edges.as_of
    for node in tokens_of(of_products, 2, "product")[1]:
        late["co-engaged"] += products[node] > edges.as_of
    assert edges.as_of <= edges.ts.min()
    return late


def drawn(inputs):
    """What a run's steps would be given."""
    trainer = small.prepared(inputs)
    seen = first_seen(trainer.batches.store)
    return [later_than_their_row(trainer.draw(step), seen) for step in range(12)]


def test_no_token_of_any_batch_is_later_than_its_row_and_a_leak_is_caught(inputs, monkeypatch):
    assert all(not any(late.values()) for late in drawn(inputs))
    real = batches.sample_seeds

    def leaking(table, sampler, kind, nodes, times, *rest):
        return real(table, sampler, kind, nodes, times + 20 * MICROS_PER_DAY, *rest)

    monkeypatch.setattr(batches, "sample_seeds", leaking)
    caught = drawn(inputs)
    assert all(late["history"] for late in caught)
    assert sum(late["buyers"] for late in caught) > 0


def test_the_edge_that_is_asked_for_raises_the_score_when_it_is_shown(inputs, tmp_path, monkeypatch):
    monkeypatch.setattr("hierarchy.validation.RECALL_AT", 4)
    trainer = small.prepared(inputs, validation={"every": 1000, "users": 80}, history_decay=0.3)
    trainer.train(tmp_path / "checkpoint.safetensors", RunContext(threads=1))
    held = trainer.held_out
    hidden = held.recall(trainer.teacher, trainer.prototypes)
    held.edges = dataclasses.replace(held.edges, ts=held.edges.ts + MICROS_PER_DAY)
    shown = held.recall(trainer.teacher, trainer.prototypes)
    assert shown > hidden + 0.1


def test_with_every_view_and_miner_on_weights_do_not_depend_on_the_future(root, inputs):
    """The plain learner is held to this in test_train; here is what else reads events before training starts."""
    options = {
        "structure": {"spectral": 4, "directional": 4, "teacher_dim": 8},
        "teaching": {"views": ("spectral", "directional")},
        "validation": {"every": 3, "users": 10},
        "mask_known": True,
        "hard_negatives": 2,
        "user_heads": 2,
        "history_decay": 0.7,
    }
    cut = small.shop(root, until=small.before(small.T0), key="past")
    assert GraphStore.open(cut["graph"]).num_nodes["user"] <= GraphStore.open(inputs["graph"]).num_nodes["user"]
    one, other = (
        FrozenLearner.open(small.trained(root, of, key, **options)) for of, key in ((inputs, "whole"), (cut, "past"))
    )
    for mine, theirs in ((one.model, other.model), (one.prototypes, other.prototypes)):
        found = theirs.state_dict()
        for name, tensor in mine.state_dict().items():
            assert tensor.numpy().tobytes() == found[name].numpy().tobytes(), name
