import numpy as np
import pytest

from data.artifacts import Store
from data.schema import EVENT_TYPES, MICROS_PER_DAY
from graph.chunks import Chunk
from graph.coengagement import Config, count
from graph.ledger import Ledger
from graph.pairs import GrowingFile, Pairs, PairsFile, added, turned
from graph.pmi import best, distinct_users, score
from graph.store import CO_ENGAGED, DEFAULT_ENGAGEMENT, SHARES_USERS
from tests.graph.chunk_rows import chunk_of, shuffled_ties

ENGAGED = np.array([name in DEFAULT_ENGAGEMENT for name in EVENT_TYPES])
SMALL = {"grid_days": 7, "min_support": 2, "min_users": 2, "shrinkage": 1.0, "top_k": 3}


@pytest.fixture(scope="module")
def log() -> Chunk:
    """Six weeks, nine days of it silent, of 60 users and 40 products in baskets around a taste."""
    rng = np.random.default_rng(1)
    rows = []
    for _ in range(800):
        user, day = int(rng.integers(60)), float(rng.integers(42)) + rng.random()
        if not 17 <= day < 26:
            rows += [(user, int((user % 4) * 10 + rng.integers(10)), "purchase", day) for _ in range(4)]
            rows += [(user, int(rng.integers(40)), "view", day)]
    return chunk_of(rows)


def run(store: Store, key: str, log: Chunk, end: int, previous=None, before: int = 0, **config):
    """Ledger artifact of the days before `end`, and what was emitted, as {relation: {grid date: (seen, rows)}}."""
    settings = Config(**{**SMALL, **config})
    emitted: dict = {}
    part = log.take((log.day >= before) & (log.day < end))
    with store.publish("graph", key, {}) as (out, extras):
        ledgers = {r: Ledger(settings, r, out.work / r.folder, previous, before) for r in (CO_ENGAGED, SHARES_USERS)}
        counted = {(relation, day): pairs for relation, day, pairs in count(part, ENGAGED, settings)}
        for day in np.unique(part.day).tolist():
            seen = int(part.visible_from[part.day == day].min())
            for relation, ledger in ledgers.items():
                edges = ledger.close(day, seen)
                if edges is not None:
                    assert (edges.visible_from == seen).all()
                    columns = (edges.src.tolist(), edges.dst.tolist(), edges.weight.tolist())
                    emitted.setdefault(relation, {})[day // 7 * 7] = seen, list(zip(*columns, strict=True))
                if (relation, day) in counted:
                    ledger.add(day, counted[relation, day])
        extras["metrics"] = {r.name: ledger.write(out) for r, ledger in ledgers.items()}
    return store.get("graph", key), emitted


def rows_of(emitted: dict, relation=CO_ENGAGED) -> list[tuple[int, int, float]]:
    """The edges of the last grid date."""
    return emitted[relation][max(emitted[relation])][1]


def hashes(ref) -> dict[str, str]:
    return {name: file["sha256"] for name, file in ref.manifest["files"].items()}


@pytest.mark.parametrize(("config", "step"), [({}, 1), ({"half_life_days": 20.0}, 3), ({"keep_pairs": 5}, 13)])
def test_day_by_day_leaves_the_very_files_and_edges_of_all_at_once(tmp_path, log, config, step):
    store = Store(tmp_path)
    whole, edges = run(store, "whole", log, 40, **config)
    ref, stepwise = None, {}
    for end in range(1, 41, step):
        ref, new = run(store, f"day{end}", log, end, ref, end - step, **config)
        for relation, days in new.items():
            stepwise.setdefault(relation, {}).update(days)
    assert hashes(ref) == hashes(whole)
    assert stepwise == edges
    assert sum(len(rows) for _, rows in edges[CO_ENGAGED].values()) > 300


def test_finished_files_are_taken_over_not_written_again(tmp_path, log):
    store = Store(tmp_path)
    first, _ = run(store, "first", log, 39)
    second, _ = run(store, "second", log, 40, first, 39)
    shared = set(first.names("pairs/")) - {f"pairs/{r.folder}/ledger.json" for r in (CO_ENGAGED, SHARES_USERS)}
    assert len(shared) > 10
    assert all((first.path / name).samefile(second.path / name) for name in shared)


def test_an_unfinished_day_is_counted_again(tmp_path, log):
    store = Store(tmp_path)
    noon = log.take(log.time < 38.5 * MICROS_PER_DAY)
    early, _ = run(store, "noon", noon, 39)
    later, _ = run(store, "later", log, 40, early, 38)
    assert hashes(later) == hashes(run(store, "whole", log, 40)[0])


def test_ranges_and_order_of_rows_do_not_matter(tmp_path, log):
    store = Store(tmp_path)
    whole, edges = run(store, "whole", log, 42)
    assert run(store, "ranges", log, 42, batch_pairs=1000)[1] == edges
    mixed, same = run(store, "mixed", shuffled_ties(log, 3), 42)
    assert same == edges
    assert hashes(mixed) == hashes(whole)


def test_no_later_event_reaches_an_edge(tmp_path, log):
    store = Store(tmp_path)
    _, edges = run(store, "clean", log, 42)
    poison = chunk_of([(user, p, "purchase", 28 + user / 100) for user in range(60) for p in (1, 39)])
    _, other = run(store, "poisoned", _joined(log, poison), 42)
    for relation in edges:
        early = {grid: rows for grid, (_, rows) in edges[relation].items() if grid <= 28}
        assert early == {grid: rows for grid, (_, rows) in other[relation].items() if grid <= 28}
        assert early.keys() != edges[relation].keys()
    assert edges != other


@pytest.mark.parametrize("at", [14.0, 14.001, 27.99, 28.0, 28.3, 33.5])
def test_a_log_cut_at_any_time_gives_what_the_whole_log_shows_then(tmp_path, log, at):
    _, whole = run(Store(tmp_path), "whole", log, 42)
    _, cut = run(Store(tmp_path), "cut", log.take(log.visible_from <= at * MICROS_PER_DAY), 42)
    for relation in whole:
        shown = {g: found for g, found in whole[relation].items() if found[0] <= at * MICROS_PER_DAY}
        assert shown == cut.get(relation, {})


def test_one_user_makes_no_edge_and_moves_none_far_however_long_it_tries(tmp_path, log):
    def bot(*targets: int) -> Chunk:
        return chunk_of([(99, p, "view", day + 0.5 + h / 24) for day in range(42) for h in range(3) for p in targets])

    _, alone = run(Store(tmp_path), "alone", _joined(log, bot(50, 51)), 42)
    assert not {src for src, _, _ in rows_of(alone)} & {50, 51}
    helpers = chunk_of([(user, p, "view", 33.5) for user in (97, 98) for p in (7, 50)])
    rare, strength = (log.take(log.user == 1), bot(7, 50), helpers), []
    for days in (2.0, None):
        _, edges = run(Store(tmp_path), f"helped{days}", _joined(*rare), 42, days_per_user=days, shrinkage=0.0)
        strength.append({(src, dst): score for src, dst, score in rows_of(edges)}.get((7, 50), 0.0))
    assert strength[0] < 0.5 * strength[1]


def test_edges_find_the_tastes_and_are_few(tmp_path, log):
    _, edges = run(Store(tmp_path), "x", log, 42)
    last = rows_of(edges)
    assert np.mean([src // 10 == dst // 10 for src, dst, _ in last]) > 0.9
    assert max(np.bincount([src for src, _, _ in last])) <= 3
    assert all(weight > 0 for _, _, weight in last)


def test_memory_of_a_node_is_bounded(tmp_path, log):
    ref, _ = run(Store(tmp_path), "x", log, 42, keep_pairs=4)
    key = ref.array(f"pairs/{CO_ENGAGED.folder}/base/key.npy")
    assert np.bincount(np.asarray(key) >> 32).max() == 4


def test_half_life_halves_what_a_grid_date_finds(tmp_path):
    rows = [(user, p, "view", day + 0.5) for user in range(8) for p in (1, 2) for day in (0, 7)]
    rows += [(user, p, "view", 7.6) for user in range(20) for p in (5, 6)] + [(0, 1, "view", 14.5)]
    ref, _ = run(Store(tmp_path), "x", chunk_of(rows), 15, half_life_days=7.0)
    base = f"pairs/{CO_ENGAGED.folder}/base"
    assert ref.array(f"{base}/support.npy").tolist() == [12 * 16, 12 * 16, 20 * 16, 20 * 16]
    assert ref.array(f"{base}/key.npy").tolist() == [1 << 32 | 2, 2 << 32 | 1, 5 << 32 | 6, 6 << 32 | 5]


def test_score_is_pmi_shrunk_by_users():
    pairs = Pairs(
        key=np.array([0 << 32 | 1, 0 << 32 | 2]),
        support=np.array([64 * 16, 16], np.int32),
        weight=np.array([8 << 20, 1 << 20]),
        users=np.array([0xFF, 1], np.uint64),
    )
    mass = np.array([10, 10, 20]) << 20
    users = 64 * np.log(64 / 56)
    expected = np.log(8 * 40 / (10 * 10)) * users / (users + 5)
    np.testing.assert_allclose(score(pairs, mass, Config(shrinkage=5.0, days_per_user=None)), [expected, 0], rtol=1e-6)
    capped = np.log(8 * (users / 64) * 40 / (10 * 10)) * users / (users + 5)
    np.testing.assert_allclose(score(pairs, mass, Config(shrinkage=5.0, days_per_user=1.0)), [max(capped, 0), 0])
    np.testing.assert_allclose(distinct_users(pairs), [users, 1])


def test_ties_go_to_more_weight_then_to_the_smaller_node():
    pairs = Pairs(
        key=np.array([7, 8, 9, 1 << 32 | 4]),
        support=np.full(4, 16, np.int32),
        weight=np.array([1, 5, 5, 1]),
        users=np.ones(4, np.uint64),
    )
    assert best(pairs, np.ones(4, np.float32), 2).tolist() == [1, 2, 3]


def test_a_growing_file_is_byte_for_byte_numpys_own(tmp_path):
    values = np.arange(1000, dtype=np.uint64)
    file = GrowingFile(tmp_path / "a" / "x.npy", np.uint64)
    for part in np.split(values, [1, 500, 500]):
        file.append(part)
    file.close()
    np.save(tmp_path / "y.npy", values)
    assert (tmp_path / "a" / "x.npy").read_bytes() == (tmp_path / "y.npy").read_bytes()


def test_a_file_reads_as_the_pairs_it_holds(tmp_path):
    rng = np.random.default_rng(0)
    key = np.unique(rng.integers(0, 500, 150_000) << 32 | rng.integers(0, 500, 150_000))
    pairs = Pairs(key, np.ones(len(key), np.int32), np.arange(len(key)), np.ones(len(key), np.uint64))
    pairs.save(tmp_path)
    file = PairsFile(tmp_path)
    assert len(file) == len(key) > 1 << 16
    for low, high in ((0, 500), (0, 1), (499, 500), (200, 300), (300, 300), (600, 700)):
        assert (file.between(low, high).weight == pairs.between(low, high).weight).all()
    assert (added(list(file.blocks(1000))).key == key).all()
    part = file.part(1000, 90_000)
    assert len(part) == 89_000
    assert (added(list(part.blocks(7000))).key == key[1000:90_000]).all()
    some = key[1000:90_000]
    assert part.between(250, 300).key.tolist() == some[(some >> 32 >= 250) & (some >> 32 < 300)].tolist()
    assert sum(map(len, turned(file, 100, 200))) == ((pairs.second >= 100) & (pairs.second < 200)).sum()


def test_counts_add():
    one = Pairs(np.array([3, 9]), np.array([16, 16], np.int32), np.array([5, 6]), np.array([1, 2], np.uint64))
    both = added([one, one, Pairs.empty()])
    assert both.weight.tolist() == [10, 12]
    assert both.users.tolist() == [1, 2]
    assert len(added([])) == 0


def _joined(*chunks: Chunk) -> Chunk:
    both = Chunk.concatenate(chunks)
    return both.take(np.lexsort((both.time, both.visible_from)))
