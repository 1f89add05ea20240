"""Content of what the catalogue does not have: that of the features stage, and the same in any company."""

import numpy as np
import pytest

from data import synthetic
from data.artifacts import Store
from data.context import RunContext
from data.errors import UsageError
from encoders import encode
from encoders.newcomers import content_of
from tests.fixtures import worlds
from tests.fixtures.artifacts import make_ref


@pytest.fixture(scope="module")
def made(tmp_path_factory, tiny_model):
    """Features of the synthetic shop, and its rows of products and advertisers."""
    store, world = Store(tmp_path_factory.mktemp("store")), worlds.world()
    events = make_ref(store, "events", lambda out: synthetic.write_events(world, out))
    config = encode.Config(t0=synthetic.cuts()[0], model=tiny_model, dim=8, near_copies=None)
    features = make_ref(
        store, "features", lambda out: encode.run(config, {"events": events}, out, RunContext(threads=1))
    )
    return features, {name: events.table(f"{name}s.parquet").to_pylist() for name in ("product", "advertiser")}


def test_known_products_get_the_content_that_they_have(made):
    features, rows = made
    found = content_of(features, "product", rows["product"])
    for name, array in (("content", found.content), ("parts", found.parts)):
        assert np.array_equal(array, np.asarray(features.array(f"{name}_product.npy"))), name
    assert not found.unread


def test_a_rows_content_depends_on_no_other_row(made):
    features, rows = made
    whole = content_of(features, "product", rows["product"])
    for pick in ([3], [70, 3, 12], list(range(79, 40, -1))):
        some = content_of(features, "product", [rows["product"][place] for place in pick])
        assert np.array_equal(some.content, whole.content[pick])


def test_nothing_known_is_zero_and_an_advertiser_is_its_own_words(made):
    features, rows = made
    bare = {"product_id": "x", "title": None, "description": None, "category": None, "attributes": None, "price": None}
    found = content_of(features, "product", [bare, rows["product"][0]])
    assert not found.content[0].any()
    assert not found.present[0].any()
    assert np.linalg.norm(found.content[1]) == pytest.approx(1, abs=1e-5)
    sellers = content_of(features, "advertiser", rows["advertiser"])
    assert np.allclose(np.linalg.norm(sellers.content, axis=1), 1, atol=1e-5)
    assert content_of(features, "product", []).content.shape == (0, 8)


def test_pictures_are_not_read_where_features_had_none(made):
    features, rows = made
    named = {**rows["product"][0], "image": ["a.png"]}
    assert np.array_equal(
        content_of(features, "product", [named]).content, content_of(features, "product", rows["product"][:1]).content
    )


def test_pictures_without_their_folder_are_refused():
    from encoders.newcomers import _pictures

    with pytest.raises(UsageError, match=r"folder that 'a\.png'"):
        _pictures({"image": {"model": "efficientnet-lite0"}}, [{"image": ["a.png"]}], None, {})
