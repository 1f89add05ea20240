import numpy as np
import pytest

from graph.sampler import Budget, TemporalSampler
from graph.views import content_only, early_window, engagement_only

ROWS = [("ann", p, "purchase", t, t) for t, p in enumerate(["apple", "soap", "bread", "pear"])] + [
    ("bob", "apple", "purchase", 3, 3)
]


@pytest.fixture(scope="module")
def tokens(graph_of):
    store = graph_of(ROWS)
    sampler = TemporalSampler(store, Budget(recent=4, uniform=3, two_hop=3, links=3))
    return sampler.sample("product", np.arange(store.num_nodes["product"]), np.full(5, 50), 0)


def test_content_and_engagement_split_the_tokens(tokens):
    content, engaged = content_only(tokens), engagement_only(tokens)
    assert (content.mask ^ engaged.mask == tokens.mask).all()
    assert content.mask[:, 10:].any()
    assert not content.mask[:, :10].any()
    assert not engaged.mask[:, 10:].any()


def test_early_window_keeps_links_and_the_oldest_events(tokens):
    early = early_window(tokens, share=0.5)
    events = tokens.mask & (tokens.age >= 0)
    assert (early.mask & ~events == tokens.mask & ~events).all()
    for row in range(5):
        kept, dropped = tokens.age[row][early.mask[row] & events[row]], tokens.age[row][events[row] & ~early.mask[row]]
        assert len(kept) == -(-events[row].sum() // 2)
        if len(dropped):
            assert kept.min() >= dropped.max()


def test_views_leave_everything_but_the_mask(tokens):
    assert early_window(tokens, 0.3).node is tokens.node
    assert (early_window(tokens, 1.0).mask == tokens.mask).all()
