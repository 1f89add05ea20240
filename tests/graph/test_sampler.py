import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.errors import UsageError
from graph.sampler import Budget, TemporalSampler, TokenSet
from graph.store import DEFAULT_ENGAGEMENT, NODE_TYPES, RELATIONS

BUDGET = Budget(recent=4, uniform=3, two_hop=4, links=3)
FIELDS = [field.name for field in dataclasses.fields(TokenSet)]
OWNERS = {"apple": "farm", "pear": "farm", "bread": "mill", "soap": "mill", "novel": None}
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["ann", "bob", "cid"]),
        st.sampled_from([*OWNERS, "@mill"]),
        st.sampled_from(["purchase", "view", "impression", "conversion"]),
        st.integers(0, 30),
        st.integers(0, 15),
    ).map(lambda row: (*row[:3], row[3], row[3] + row[4])),
    max_size=25,
)


def seen(event):
    return max(event[3] + 1, event[4])


def touches(event, kind, name):
    """Whether an event is engagement of the node `name`."""
    user, product, event_type, *_ = event
    if event_type not in DEFAULT_ENGAGEMENT:
        return False
    alone = product.startswith("@")
    owner = product[1:] if alone else OWNERS[product]
    campaign = "spring" if alone else None
    return name == {"user": user, "product": product, "advertiser": owner, "campaign": campaign}.get(kind)


def tokens_of(store, tokens, row):
    """The real tokens of one seed as (slot, node type, external id, relation, hop, age, degree)."""
    found = []
    for slot in np.flatnonzero(tokens.mask[row]):
        kind = NODE_TYPES[tokens.node_type[row, slot]]
        name = store.entity_ids(kind)[int(tokens.node[row, slot])].as_py()
        relation = RELATIONS[tokens.relation[row, slot]]
        rest = (int(tokens.hop[row, slot]), int(tokens.age[row, slot]), float(tokens.degree[row, slot]))
        found.append((int(slot), kind, name, relation, *rest))
    return found


def same(one, other):
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


def everyone(store, kind):
    return np.arange(store.num_nodes[kind])


@settings(max_examples=40, deadline=None)
@given(rows=ROWS, time=st.integers(0, 50), kind=st.sampled_from(["user", "product", "advertiser"]))
def test_every_token_was_visible_before_the_seed_time(graph_of, rows, time, kind):
    store = graph_of(rows)
    seeds = everyone(store, kind)
    tokens = TemporalSampler(store, BUDGET).sample(kind, seeds, np.full(len(seeds), time), seed=3)
    for row in seeds:
        name = store.entity_ids(kind)[int(row)].as_py()
        for _, node_kind, node, relation, hop, age, degree in tokens_of(store, tokens, row):
            visible = [event for event in rows if seen(event) <= time]
            if age < 0:
                assert relation.dst == node_kind
                known = store.known_at(node_kind)[store.encode(node_kind, [node])[0]]
                assert known <= time
            else:
                origin = [e for e in visible if e[3] == time - age and touches(e, node_kind, node)]
                assert origin
                assert hop == 2 or any(touches(e, kind, name) for e in origin)
            if node_kind != "category":
                assert degree == pytest.approx(np.log1p(sum(touches(e, node_kind, node) for e in visible)))


@settings(max_examples=40, deadline=None)
@given(rows=ROWS, time=st.integers(5, 40), kind=st.sampled_from(["user", "product", "advertiser"]))
def test_events_that_become_known_later_change_no_token(graph_of, rows, time, kind):
    store, short = graph_of(rows), graph_of([event for event in rows if seen(event) <= time])
    seeds = everyone(short, kind)
    times = np.full(len(seeds), time)
    full, cut = TemporalSampler(store, BUDGET), TemporalSampler(short, BUDGET)
    same(full.sample(kind, seeds, times, seed=1), cut.sample(kind, seeds, times, seed=1))
    np.testing.assert_array_equal(full.degree(kind, seeds, times), cut.degree(kind, seeds, times))


SHOP = [
    *(
        ("ann", product, "purchase", ts, ts)
        for ts, product in enumerate(["apple", "soap", "bread", "apple", "pear"], 10)
    ),
    *(("bob", product, "purchase", ts, ts) for ts, product in enumerate(["apple", "novel", "bread"], 11)),
    *(("cid", product, "view", ts, ts) for ts, product in enumerate(["soap", "pear"], 12)),
    ("cid", "apple", "impression", 20, 20),
    ("bob", "@mill", "conversion", 14, 30),
]


def sample(store, kind, names, time=100, budget=BUDGET, **options):
    nodes = store.encode(kind, names)
    return TemporalSampler(store, budget).sample(kind, nodes, np.full(len(nodes), time), seed=0, **options)


def names_in(store, tokens, slots, row=0):
    return [token[2] for token in tokens_of(store, tokens, row) if token[0] in slots]


def test_recent_tokens_prefer_other_products_to_repeats(graph_of):
    bought = ["bread", "soap", "apple", "apple", "apple", "pear"]
    store = graph_of([("ann", product, "purchase", ts, ts) for ts, product in enumerate(bought)])
    tokens = sample(store, "user", ["ann"], budget=Budget(3, 0, 0, 0))
    assert names_in(store, tokens, range(3)) == ["pear", "apple", "soap"]


def test_recent_tokens_are_the_newest_first(graph_of):
    store = graph_of(SHOP)
    tokens = sample(store, "user", ["ann"])
    assert names_in(store, tokens, range(4)) == ["pear", "apple", "bread", "soap"]
    assert tokens.age[0, :4].tolist() == [86, 87, 88, 89]


def test_repeats_fill_the_slots_that_are_left(graph_of):
    store = graph_of([("ann", "apple", "purchase", ts, ts) for ts in (1, 2, 3)])
    assert names_in(store, sample(store, "user", ["ann"]), range(4)) == ["apple"] * 3


def test_relations_are_merged_by_recency(graph_of):
    store = graph_of(SHOP)
    relations = [token[3].name for token in tokens_of(store, sample(store, "user", ["bob"]), 0) if token[0] < 4]
    assert relations == ["conversion", "purchase", "purchase", "purchase"]


def test_impressions_are_no_engagement_unless_asked_for(graph_of):
    store = graph_of(SHOP)
    assert "apple" not in names_in(store, sample(store, "user", ["cid"]), range(7))
    store = graph_of(SHOP, engagement=("impression",))
    tokens = sample(store, "user", ["cid"])
    assert names_in(store, tokens, range(4)) == ["apple"]


def test_uniform_tokens_are_distinct_events_spread_over_the_history(graph_of):
    rows = [("ann", "apple", "purchase", ts, ts) for ts in range(300)]
    store = graph_of(rows)
    ages = np.concatenate([
        TemporalSampler(store, Budget(0, 6, 0, 0)).sample("user", np.zeros(1, int), np.array([300]), seed).age[0]
        for seed in range(300)
    ])  # fmt: skip
    strata = np.bincount((300 - ages) // 50, minlength=6)
    assert strata.tolist() == [300] * 6
    assert len(np.unique(ages)) > 250


def test_a_short_history_gives_each_event_once(graph_of):
    store = graph_of(SHOP)
    tokens = sample(store, "user", ["bob"], budget=Budget(0, 9, 0, 0))
    assert sorted(names_in(store, tokens, range(9))) == ["apple", "bread", "mill", "novel"]


def test_walks_end_at_products_that_others_engaged_with(graph_of):
    store = graph_of(SHOP)
    budget = Budget(recent=0, uniform=0, two_hop=30, links=0)
    co_bought = set(names_in(store, sample(store, "product", ["soap"], budget=budget), range(30)))
    assert co_bought == {"apple", "bread", "pear"}  # through ann and cid; never soap itself
    tokens = sample(store, "user", ["cid"], budget=budget)
    assert set(tokens.node_type[tokens.mask].tolist()) == {NODE_TYPES.index("product")}
    assert {"apple", "bread"} & set(names_in(store, tokens, range(30)))
    assert set(tokens.hop[tokens.mask].tolist()) == {2}


def test_walk_weights_multiply_the_chances_of_the_steps(graph_of):
    store = graph_of(
        [("ann", "apple", "purchase", 1, 1), ("ann", "pear", "purchase", 2, 2), ("bob", "apple", "view", 3, 3)]
    )
    tokens = sample(store, "product", ["apple"], budget=Budget(1, 0, 8, 0))
    walked = tokens.weight[0, 1:][tokens.mask[0, 1:]]
    assert tokens.weight[0, 0] == pytest.approx(1 / 2)
    assert walked.tolist() == pytest.approx([1 / 4] * len(walked))
    assert len(walked)


def test_links_lead_from_a_product_up_to_its_owner_and_categories(graph_of):
    store = graph_of(SHOP)
    tokens = sample(store, "product", ["bread"], budget=Budget(0, 0, 0, 4))
    assert names_in(store, tokens, range(4)) == ["mill", "Food > Bakery > Bread", "Food > Bakery", "Food"]
    assert tokens.age[0].tolist() == [-1] * 4
    assert tokens.hop[0].tolist() == [1, 1, 2, 2]


def test_links_of_other_node_types(graph_of):
    store = graph_of(SHOP)
    links = Budget(0, 0, 0, 3)
    assert sorted(names_in(store, sample(store, "advertiser", ["mill"], budget=links), range(3))) == ["bread", "soap"]
    assert names_in(store, sample(store, "campaign", ["spring"], budget=links), range(3)) == ["mill"]
    assert names_in(store, sample(store, "user", ["bob"], budget=links), range(3)) == ["spring"]
    path = sample(store, "category", ["Food > Bakery > Bread"], budget=links)
    assert names_in(store, path, range(3)) == ["Food > Bakery", "Food"]


def test_an_advertiser_stands_where_its_products_are_bought(graph_of):
    store = graph_of(SHOP)
    tokens = sample(store, "advertiser", ["farm"])
    assert names_in(store, tokens, range(2)) == ["pear", "apple"]
    assert TemporalSampler(store).degree("advertiser", store.encode("advertiser", ["farm"]), np.array([13])).item() == 2


def test_the_target_edge_is_masked(graph_of):
    store = graph_of(SHOP)
    budget = Budget(recent=4, uniform=3, two_hop=20, links=0)
    apple, ann = store.encode("product", ["apple"]), store.encode("user", ["ann"])
    plain, masked = (sample(store, "user", ["ann"], budget=budget, exclude=x) for x in (None, apple))
    assert "apple" in names_in(store, plain, range(7))
    assert names_in(store, masked, range(7)).count("apple") == 0
    assert names_in(store, masked, range(4)) == ["pear", "bread", "soap"]
    back = sample(store, "product", ["soap"], budget=budget, exclude=ann)
    assert names_in(store, back, range(4)) == ["cid"]
    assert set(names_in(store, back, range(7, 27))) == {"pear"}  # only cid is a bridge now


def test_a_walk_never_returns_through_its_seed(graph_of):
    store = graph_of([("ann", "apple", "purchase", 1, 1), ("ann", "pear", "purchase", 2, 2)])
    tokens = sample(store, "user", ["ann"], budget=Budget(2, 0, 12, 0))
    assert not tokens.mask[0, 2:].any()


def test_a_token_set_does_not_depend_on_its_batch(graph_of):
    store = graph_of(SHOP)
    sampler = TemporalSampler(store, BUDGET)
    nodes, times = np.array([0, 1, 2, 1, 0]), np.array([40, 13, 12, 99, 7])
    together = sampler.sample("user", nodes, times, seed=5)
    for row in range(5):
        alone = sampler.sample("user", nodes[row : row + 1], times[row : row + 1], seed=5)
        for name in FIELDS:
            np.testing.assert_array_equal(getattr(together, name)[row], getattr(alone, name)[0])


def test_equal_seeds_give_equal_tokens_and_other_seeds_others(graph_of):
    rows = [("ann", product, "purchase", ts, ts) for ts, product in enumerate(list(OWNERS) * 20)]
    store = graph_of(rows)
    draws = [sample(store, "user", ["ann"], budget=Budget(0, 8, 0, 0)) for _ in range(2)]
    same(*draws)
    other = TemporalSampler(store, Budget(0, 8, 0, 0)).sample("user", np.zeros(1, int), np.array([100]), seed=1)
    assert (other.age != draws[0].age).any()


def test_nodes_without_edges_and_unknown_nodes_are_all_padding(graph_of):
    store = graph_of(SHOP)
    zoe = store.encode("user", ["zoe", "nobody"])
    tokens = TemporalSampler(store, BUDGET).sample("user", zoe, np.array([99, 99]), 0)
    assert tokens.mask.shape == (2, BUDGET.total)
    assert not tokens.mask.any()
    for name, padding in (("node", -1), ("node_type", -1), ("relation", -1), ("age", -1), ("hop", 0), ("weight", 0)):
        assert (getattr(tokens, name) == padding).all()


def test_an_empty_graph_and_an_empty_batch_are_fine(graph_of):
    store = graph_of([])
    tokens = sample(store, "product", ["apple"])
    assert names_in(store, tokens, range(20)) == ["farm", "Food > Fruit", "Food"]
    assert TemporalSampler(store, BUDGET).sample("user", np.zeros(0, int), np.zeros(0, int), 0).mask.shape == (0, 14)


def test_types_of_the_arrays_are_as_documented(graph_of):
    tokens = sample(graph_of(SHOP), "user", ["ann", "bob"])
    kinds = [getattr(tokens, name).dtype for name in FIELDS]
    assert [str(kind).removeprefix("torch.") for kind in kinds] == [
        "int8",
        "int64",
        "int16",
        "int8",
        "int64",
        "float32",
        "float32",
        "bool",
    ]


def test_wrong_arguments_are_explained(graph_of):
    sampler = TemporalSampler(graph_of(SHOP))
    with pytest.raises(UsageError, match="did you mean 'user'"):
        sampler.sample("users", np.zeros(1, int), np.zeros(1, int), 0)
    with pytest.raises(UsageError, match="one time"):
        sampler.sample("user", np.zeros(2, int), np.zeros(1, int), 0)
