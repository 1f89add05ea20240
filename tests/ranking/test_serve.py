from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch

from data.artifacts import ArtifactRef, Store
from data.errors import BadDataError, UsageError
from data.schema import to_micros
from ranking import train
from ranking.fitting import Schedule, predict
from ranking.joins import Joins
from ranking.models import Architecture
from ranking.reader import TEST, Examples
from ranking.serve import INPUTS, RankerService, Request
from ranking.train import Config
from tests.ranking.shops import DAY, T1, T2, Shop, make_examples, run_stage, token

SMALL = Architecture(
    width=8, history_len=6, user_buckets=64, product_buckets=64, advertiser_buckets=16, category_buckets=16
)
CONFIG = Config(architecture=SMALL, schedule=Schedule(batch_rows=64), seeds=(0,), max_rows=2000, baselines=("dcnv2",))
EARLY = {"t1": T1 + timedelta(hours=1), "t2": T1 + timedelta(hours=2)}
AT = to_micros(T2) + 5 * DAY + 7


def _base(examples: ArtifactRef) -> dict[str, ArtifactRef]:
    """What stays where other inputs change: states come from a model of their own, whose tests hold the same of it."""
    return {name: _inputs(examples)[name] for name in ("examples", "user_states")}


def _inputs(examples: ArtifactRef) -> dict[str, ArtifactRef]:
    store = Store(examples.path.parents[1])
    return {"examples": examples, **{name: store.get(name, "k") for name in INPUTS if name != "examples"}}


@pytest.fixture(scope="module")
def ranker(examples_ref: ArtifactRef, tmp_path_factory: pytest.TempPathFactory) -> ArtifactRef:
    return run_stage(tmp_path_factory.mktemp("ranker"), "ranker", train, CONFIG, {"examples": examples_ref})


@pytest.fixture(scope="module")
def service(ranker: ArtifactRef, examples_ref: ArtifactRef) -> RankerService:
    return RankerService.open(ranker, _inputs(examples_ref))


def _requests(examples: Examples, rows: np.ndarray) -> list[Request]:
    """One request a row, in external ids."""
    ref, columns = examples.ref, examples.columns
    users, products = ref.table("users.parquet")["user_id"], ref.table("products.parquet")["product_id"]
    return [
        Request(users[columns["user"][row]].as_py(), [products[columns["product"][row]].as_py()],
                int(columns["ts"][row]), examples.surfaces[columns["surface"][row]])
        for row in rows
    ]  # fmt: skip


def _predicted(ranker: ArtifactRef, arm: str) -> np.ndarray:
    table = ranker.table("predictions.parquet")
    mine = pc.and_(pc.equal(table["model"], "ranker"), pc.equal(table["arm"], arm))
    return np.asarray(table.filter(mine)["score"].to_numpy())


@pytest.mark.parametrize("arm", ["tokens", "no_tokens"])
def test_rows_of_the_examples_score_bitwise_as_the_ranker_stage_predicted_them(
    ranker: ArtifactRef, examples_ref: ArtifactRef, arm: str
) -> None:
    service = RankerService.open(ranker, _inputs(examples_ref), f"ranker-{arm}-0")
    examples = Examples.open(examples_ref)
    rows = examples.rows(TEST)
    found = service.rank_many(_requests(examples, rows))
    scores = np.array([ranking.score[0] for ranking in found])
    assert len(scores) > 100
    assert np.array_equal(scores.astype(np.float32), _predicted(ranker, arm))
    immediate, deep = predict(service._network, service._batcher.on(examples.columns), rows)
    assert np.array_equal([ranking.deep[0] for ranking in found], 0.5 * (1 + np.tanh(0.5 * deep)))
    assert np.array_equal(scores, 0.5 * (1 + np.tanh(0.5 * (immediate + service._shift))))


def test_other_shapes_of_a_batch_score_within_rounding(
    ranker: ArtifactRef, service: RankerService, examples_ref: ArtifactRef
) -> None:
    examples = Examples.open(examples_ref)
    predicted, rows = _predicted(ranker, "tokens"), examples.rows(TEST)
    requests = _requests(examples, rows)
    together: dict[tuple[str, int], list[int]] = {}
    for place, request in enumerate(requests):
        together.setdefault((request.user_id, request.ts), []).append(place)
    assert {len(places) % 2 for places in together.values()} == {0, 1}
    for (user, ts), places in together.items():
        candidates = [requests[place].candidates[0] for place in places]
        ranking = service.rank(user, candidates, ts, [str(requests[place].surface) for place in places])
        assert np.allclose(ranking.score, predicted[places][ranking.place], rtol=1e-5, atol=1e-7)
        assert [candidates[place] for place in ranking.place] == ranking.product_id
        assert np.all(np.diff(ranking.score) <= 0)
    for size in (7, 64):
        found = service.rank_many(requests[:100], batch_rows=size)
        assert np.allclose([one.score[0] for one in found], predicted[:100], rtol=1e-5, atol=1e-7)


def test_joined_rows_are_those_of_the_examples(service: RankerService, examples_ref: ArtifactRef) -> None:
    examples = Examples.open(examples_ref)
    for row, request in zip(examples.rows(TEST), _requests(examples, examples.rows(TEST)), strict=True):
        joined = service.rows(request)
        for name in joined.keys() - {"label"}:
            assert joined[name][0] == examples.columns[name][row], name
            assert joined[name].dtype == examples.columns[name].dtype, name


def test_what_a_user_does_moves_no_other_user_by_a_bit(
    shop: Shop, ranker: ArtifactRef, examples_ref: ArtifactRef, tmp_path: Path
) -> None:
    # u-0's purchases become views: other scores for u-0 from as many events and products in every batch.
    events = shop.events
    mine = pc.and_(pc.equal(events["user_id"], "u-0"), pc.equal(events["event_type"], "purchase"))
    kinds = pc.if_else(mine, "view", events["event_type"])
    changed = Shop(**{**vars(shop), "events": events.set_column(events.column_names.index("event_type"),
                                                                events.schema.field("event_type"), kinds)})  # fmt: skip
    other = _inputs(make_examples(changed, tmp_path)) | _base(examples_ref)
    products = [f"p-{number}" for number in range(12)]
    requests = [Request(user, products, AT) for user in ("u-0", "u-1")]
    before = RankerService.open(ranker, _inputs(examples_ref)).rank_many(requests)
    after = RankerService.open(ranker, other).rank_many(requests)
    assert not np.array_equal(before[0].score, after[0].score)
    assert before[1].product_id == after[1].product_id
    assert np.array_equal(before[1].score, after[1].score)
    assert np.array_equal(before[1].deep, after[1].deep)


def test_nothing_later_than_the_request_changes_its_scores(
    shop: Shop, ranker: ArtifactRef, service: RankerService, examples_ref: ArtifactRef, tmp_path: Path
) -> None:
    ts = to_micros(T1) + 2 * DAY
    early = _inputs(make_examples(shop.before(ts), tmp_path, **EARLY)) | _base(examples_ref)
    then = RankerService.open(ranker, early)
    assert len(then.products) < len(service.products), "internal ids must differ"
    products = then.products.to_pylist()
    for user in ("u-3", "u-4"):
        now, past = (s.rank(user, products, ts, "display:1") for s in (service, then))
        assert now.product_id == past.product_id
        assert np.allclose(now.score, past.score, rtol=1e-5)


def test_a_user_is_joined_once_for_all_candidates_and_requests_of_a_time(
    service: RankerService, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    joined = Joins.user_side

    def user_side(self: Joins, user: np.ndarray, ts: np.ndarray) -> dict[str, np.ndarray]:
        asked.append(len(user))
        return joined(self, user, ts)

    monkeypatch.setattr(Joins, "user_side", user_side)
    for _ in range(3):
        service.rank("u-5", [f"p-{number % 30}" for number in range(1000)], AT + 1)
    assert asked == [1]
    service.rank("u-5", ["p-1"], AT + 2)
    assert asked == [1, 1]


def test_the_oldest_users_leave_the_cache(
    ranker: ArtifactRef, examples_ref: ArtifactRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = RankerService.open(ranker, _inputs(examples_ref))
    monkeypatch.setattr("ranking.serve.CACHED_USERS", 2)
    for number in range(4):
        service.rank(f"u-{number}", ["p-1"], AT + 3)
    kept = [(service._codes["user"][name], AT + 3) for name in ("u-2", "u-3")]
    assert list(service._users) == kept


def test_who_and_what_is_unknown_is_cold_and_says_so(service: RankerService) -> None:
    stranger = service.rank("nobody", ["p-1", "no such", "p-2"], AT)
    assert stranger.cold
    assert dict(zip(stranger.product_id, stranger.known.tolist(), strict=True)) == {
        "p-1": True, "no such": False, "p-2": True,
    }  # fmt: skip
    assert np.all((stranger.score > 0) & (stranger.score < 1))
    assert not service.rank("u-1", ["p-1"], AT).cold
    assert service.rank("u-1", ["p-1"], 1).cold, "no event was readable in 1970"
    equal = service.rank("other", ["no such", "p-1", "nor this"], AT)
    absent = equal.score[[equal.product_id.index(name) for name in ("no such", "nor this")]]
    assert absent[0] == pytest.approx(absent[1], rel=1e-6)
    assert service.rank("u-1", [], AT).product_id == []
    assert service.rank_many([]) == []


def test_an_advertiser_may_be_named(service: RankerService) -> None:
    own, named = service.rank("u-1", ["p-1"], AT), service.rank("u-1", ["p-1"], AT, advertisers=["a-1"])
    assert own.score[0] == named.score[0], "a-1 owns p-1"
    assert service.rank("u-1", ["p-1"], AT, advertisers=["a-2"]).score[0] != own.score[0]


def test_wrong_requests_say_what_was_expected(service: RankerService) -> None:
    cases: list[tuple[Mapping[str, object], str]] = [
        ({"surface": "dsplay:1"}, "unknown surface 'dsplay:1': did you mean 'display:1'"),
        ({"advertisers": ["a-9"]}, "unknown advertiser 'a-9'"),
        ({"advertisers": ["a-1", "a-2"]}, "advertisers for 1 candidates, got 2"),
        ({"surface": ["mailer:A", None]}, "surfaces for 1 candidates, got 2"),
        ({"ts": 1.5}, "whole microseconds"),
    ]
    for given, words in cases:
        with pytest.raises(UsageError, match=words):
            service.rank(**{"user_id": "u-1", "candidates": ["p-1"], "ts": AT, **given})  # type: ignore[arg-type]


def test_fits_and_artifacts_that_do_not_belong_are_refused(
    ranker: ArtifactRef, examples_ref: ArtifactRef, tmp_path: Path
) -> None:
    inputs = _inputs(examples_ref)
    with pytest.raises(UsageError, match="did you mean 'ranker-tokens-0'"):
        RankerService.open(ranker, inputs, "ranker-tokens-7")
    with pytest.raises(UsageError, match="no fit 'dcnv2-baseline-0' of the ranker"):
        RankerService.open(ranker, inputs, "dcnv2-baseline-0")
    with Store(tmp_path).publish("ranker", "k", {"inputs": {"examples": "other"}}) as (out, extras):
        extras["metrics"] = {}
        out.write_json("ranker.json", ranker.json("ranker.json"))
    with pytest.raises(BadDataError, match="expected examples other"):
        RankerService.open(Store(tmp_path).get("ranker", "k"), inputs)
    with Store(tmp_path).publish("user_states", "k", {"inputs": {}}) as (out, extras):
        extras["metrics"] = {}
        out.write_tensors("model.safetensors", {"another": torch.zeros(1)})
    with pytest.raises(BadDataError, match="states by user model"):
        RankerService.open(ranker, inputs | {"user_states": Store(tmp_path).get("user_states", "k")})


def test_surfaces_without_a_name_are_absent(service: RankerService) -> None:
    one = service.rank("u-2", ["p-1", "p-2"], AT)
    other = service.rank("u-2", ["p-1", "p-2"], AT, [None, None])
    assert np.array_equal(one.score, other.score)
    assert isinstance(service.products, pa.Array)


def test_a_later_vocabulary_is_read_by_its_public_ids(
    shop: Shop, ranker: ArtifactRef, service: RankerService, examples_ref: ArtifactRef, tmp_path: Path
) -> None:
    # An interest that the ranker never saw stands between those it knows, so that all later ones move by one.
    minted = pa.Table.from_pylist(token("product", "p-0", AT - DAY, {"L2-0002x": 1.0}), shop.tokens.schema)
    later = Shop(**{**vars(shop), "tokens": pa.concat_tables([shop.tokens, minted])})
    inputs = _inputs(make_examples(later, tmp_path)) | _base(examples_ref)
    then = RankerService.open(ranker, inputs)
    products = [f"p-{number}" for number in range(1, 20)]
    for user in ("u-0", "u-7"):
        before, after = service.rank(user, products, AT), then.rank(user, products, AT)
        assert before.product_id == after.product_id
        assert np.allclose(before.score, after.score, rtol=1e-6)
    place = then.rows(Request("u-0", ["p-0"], AT))["product_tokens"][0]
    assert (then._batcher.bags.slots["product"][place] == -1).all(), "what it does not know is absent"
