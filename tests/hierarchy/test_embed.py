import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from data.artifacts import ArtifactRef, Store
from data.schema import MICROS_PER_DAY, embeddings_schema
from graph.store import GraphStore
from hierarchy import embed
from hierarchy.asof import read_as_of
from hierarchy.inference import EntityEncoder, FrozenLearner
from tests.hierarchy import small_learner as small

DAY = MICROS_PER_DAY
WEEK = 7 * DAY


def files(ref: ArtifactRef) -> dict[str, str]:
    return {name: listed["sha256"] for name, listed in ref.manifest["files"].items()}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return Store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def inputs(root):
    found = small.shop(root)
    return {**found, "learner": small.trained(root, found, user_heads=2)}


@pytest.fixture(scope="module")
def embeddings(root, inputs):
    return small.embedded(root, inputs)


@pytest.fixture(scope="module")
def table(embeddings) -> pa.Table:
    return embeddings.table("embeddings/")


def test_rows_follow_the_contract_and_are_sorted(table, embeddings):
    assert table.schema.equals(embeddings_schema(16), check_metadata=False)
    keys = [table[name].to_pylist() for name in ("as_of", "entity_type", "entity_id", "head")]
    rows = list(zip(*keys, strict=True))
    assert rows == sorted(rows)
    assert len(set(rows)) == len(rows)
    vectors = np.array(table["vector"].to_pylist())
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert embeddings.metrics["last_as_of"] == max(keys[0])
    assert set(table["model_version"].to_pylist()) == {embeddings.metrics["model_version"]}


def test_users_have_their_heads_and_others_one(table):
    for kind, heads in (("user", {0, 1}), ("product", {0}), ("advertiser", {0})):
        assert set(table.filter(pc.equal(table["entity_type"], kind))["head"].to_pylist()) == heads


def test_the_first_date_holds_everybody_known_and_later_ones_those_with_news(table, inputs):
    store, t0 = GraphStore.open(inputs["graph"]), small.before(small.T0)
    first = table.filter(pc.equal(table["as_of"], t0))
    for kind in ("user", "product", "advertiser"):
        found = set(first.filter(pc.equal(first["entity_type"], kind))["entity_id"].to_pylist())
        ids = np.array(store.entity_ids(kind).to_pylist())
        assert found == set(ids[store.known_at(kind) <= t0])
    rows = table.filter(pc.equal(table["entity_type"], "product")).to_pylist()
    degree = {row["entity_id"]: row["degree"] for row in rows if row["as_of"] == t0}
    for row in rows:
        if row["as_of"] > t0:
            new = row["entity_id"] not in degree
            assert new or row["degree"] > degree[row["entity_id"]]
            degree[row["entity_id"]] = row["degree"]


def test_popularity_grows_with_degree_and_users_have_none(table):
    products = table.filter(pc.equal(table["entity_type"], "product"))
    degree, popularity = products["degree"].to_numpy(), products["popularity"].to_numpy()
    assert np.allclose(popularity, np.log1p(degree) * popularity.max() / np.log1p(degree.max()), atol=1e-5)
    users = table.filter(pc.equal(table["entity_type"], "user"))
    assert not users["popularity"].to_numpy().any()


def test_popularity_of_late_forgets_and_who_is_forgotten_gets_a_row(root, inputs):
    days = 10
    learner = small.trained(root, inputs, "late", popularity_days=days, steps=6)
    table = small.embedded(root, {**inputs, "learner": learner}, "late").table("embeddings/")
    rows = table.filter(pc.equal(table["entity_type"], "product")).to_pylist()
    frozen = FrozenLearner.open(learner)
    sampler = EntityEncoder(frozen, inputs["graph"], inputs["features"]).samplers["product"]
    store, last = GraphStore.open(inputs["graph"]), {}
    for row in sorted(rows, key=lambda row: row["as_of"]):
        last[row["entity_id"]] = row["popularity"]
    nodes, end = np.arange(store.num_nodes["product"]), np.int64(table["as_of"].to_numpy().max())
    now, then = (sampler.degree("product", nodes, np.full(len(nodes), t)).numpy() for t in (end, end - days * DAY))
    expected = frozen.model.link.popularity_in_cosine() * np.log1p(now - then)
    found = np.array([last[name] for name in store.entity_ids("product").to_pylist()])
    assert (now > 0)[expected == 0].any()
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_deleting_later_events_changes_no_earlier_row(root, inputs, table):
    date = small.before(small.T0) + 2 * WEEK
    cut = small.shop(root, until=date, key="cut")
    found = small.embedded(root, {**cut, "learner": inputs["learner"]}, "cut").table("embeddings/")
    early = table.filter(pc.less(table["as_of"], date))
    assert early.num_rows > 0
    assert found.filter(pc.less(found["as_of"], date)).equals(early)


def test_a_killed_run_keeps_its_dates_and_ends_equal(root, inputs, embeddings, monkeypatch):
    write, done = embed._write_date, []

    def dies(path, **rest):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(path)
        return write(path, **rest)

    with monkeypatch.context() as patched:
        patched.setattr(embed, "_write_date", dies)
        with pytest.raises(KeyboardInterrupt):
            small.embedded(root, inputs, "killed")
    again: list = []
    monkeypatch.setattr(embed, "_write_date", lambda path, **rest: (again.append(path), write(path, **rest))[1])
    resumed = small.embedded(root, inputs, "killed")
    assert again
    assert not {path.name for path in done} & {path.name for path in again}
    assert files(resumed) == files(embeddings)


def test_smaller_pieces_give_equal_rows(root, inputs, table, monkeypatch):
    monkeypatch.setattr(embed, "_ROWS", 7)
    assert small.embedded(root, inputs, "pieces").table("embeddings/").equals(table)


def test_a_reader_takes_the_last_row_before_its_time(embeddings, table):
    time = small.before(small.T1) + 3
    found = read_as_of(embeddings, "user", time)
    rows = table.filter(pc.equal(table["entity_type"], "user")).to_pylist()
    newest: dict[str, dict[int, dict]] = {}
    for row in rows:
        if row["as_of"] <= time:
            newest.setdefault(row["entity_id"], {})[row["head"]] = row
    assert found.entity_id.to_pylist() == sorted(newest)
    for name, vectors, as_of, degree in zip(
        found.entity_id.to_pylist(), found.vectors, found.as_of, found.degree, strict=True
    ):
        assert as_of == newest[name][0]["as_of"]
        assert degree == newest[name][0]["degree"]
        for head in (0, 1):
            assert vectors[head].tolist() == newest[name][head]["vector"]
    assert read_as_of(embeddings, "user").as_of.max() > time


def test_before_the_first_date_nothing_is_known(embeddings):
    found = read_as_of(embeddings, "product", 0)
    assert len(found.entity_id) == 0
    assert found.vectors.shape == (0, 1, 16)
