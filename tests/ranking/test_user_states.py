"""The stage user_states: states as of a date, training that resumes, and what it learns beyond popularity."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest

from data.artifacts import ArtifactRef, sha256_file
from data.context import RunContext
from data.errors import UsageError
from data.schema import to_micros
from ranking import histories, user_states, user_training
from ranking.user_events import UserEvents
from ranking.user_model import UserArchitecture
from ranking.user_states import Config
from ranking.user_training import UserSchedule
from tests.ranking.shops import DAY, SHORT, SMALL_MODEL, T0, Shop, event, publish_shop, run_stage, shop_of, token

START = to_micros(T0)
CONFIG = Config(t0=T0, architecture=SMALL_MODEL, schedule=SHORT.model_copy(update={"epochs": 3, "checks": 2}))


def _run(shop: Shop, store: Path, config: Config = CONFIG, seed: int = 0) -> ArtifactRef:
    inputs = publish_shop(shop, store)
    inputs["histories"] = run_stage(store, "histories", histories, histories.Config(), inputs)
    return run_stage(store, "user_states", user_states, config, inputs, seed)


@pytest.fixture(scope="module")
def ref(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> ArtifactRef:
    return _run(shop, tmp_path_factory.mktemp("states"))


def _states(ref: ArtifactRef) -> dict[tuple[str, int], bytes]:
    states = ref.array("states.npy")
    return {
        (row["user_id"], row["as_of"]): states[row["row"]].tobytes() for row in ref.table("rows.parquet").to_pylist()
    }


def test_a_user_has_a_row_at_each_date_before_which_something_became_visible(ref: ArtifactRef, shop: Shop) -> None:
    dates = sorted(set(shop.tokens["as_of"].to_pylist()))
    acted = shop.events.filter(pc.equal(shop.events["event_type"], "purchase"))
    expected = set()
    for user in set(acted["user_id"].to_pylist()):
        visible = np.array(acted.filter(pc.equal(acted["user_id"], user))["ts"]) + 1
        counts = [int((visible <= date).sum()) for date in dates]
        expected |= {(user, d) for d, now, was in zip(dates, counts, [0, *counts[:-1]], strict=True) if now > was}
    rows = [(row["user_id"], row["as_of"]) for row in ref.table("rows.parquet").to_pylist()]
    assert rows == sorted(expected)
    assert ref.array("states.npy").shape == (len(rows), SMALL_MODEL.seeds, SMALL_MODEL.width)
    assert sorted(ref.table("rows.parquet")["row"].to_pylist()) == list(range(len(rows)))
    assert ref.metrics["rows"] == len(rows)
    assert len(set(_states(ref).values())) == len(rows), "no two rows are alike"


@pytest.mark.parametrize("days", [14, 33])
def test_events_after_a_date_change_no_bit_of_the_states_up_to_it(
    days: int, ref: ArtifactRef, shop: Shop, tmp_path: Path
) -> None:
    t = START + days * DAY + 5
    later = pc.greater_equal(shop.events["ts"], t)
    swapped = pc.if_else(later, "p-1", shop.events["product_id"])
    place = shop.events.column_names.index("product_id")
    changed = Shop(**(vars(shop) | {"events": shop.events.set_column(place, "product_id", swapped)}))
    whole = _states(ref)
    kept = {key: value for key, value in whole.items() if key[1] < t}
    for name, other in (("cut", shop.before(t)), ("changed", changed)):
        made = _run(other, tmp_path / name)
        assert {key: value for key, value in _states(made).items() if key[1] < t} == kept
        assert sha256_file(made.file("model.safetensors")) == sha256_file(ref.file("model.safetensors"))
    assert 0 < len(kept) < len(whole)
    assert _states(made) != whole


def test_permuted_rows_give_the_same_bytes(ref: ArtifactRef, shop: Shop, tmp_path: Path) -> None:
    assert _run(shop.permuted(4), tmp_path).manifest["files"] == ref.manifest["files"]


def test_another_seed_gives_another_model(ref: ArtifactRef, shop: Shop, tmp_path: Path) -> None:
    other = _run(shop, tmp_path, seed=1)
    assert sha256_file(other.file("model.safetensors")) != sha256_file(ref.file("model.safetensors"))


@pytest.mark.parametrize("killed_at", [1, 2])
def test_a_killed_run_ends_as_one_that_was_not(
    killed_at: int, ref: ArtifactRef, shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[int] = []
    step = user_training.Training.step

    def watched(self: user_training.Training, number: int) -> dict[str, float]:
        steps.append(number)
        if steps.count(killed_at) == 1 and number == killed_at:
            raise KeyboardInterrupt
        return step(self, number)

    monkeypatch.setattr(user_training, "_KEPT_EVERY", 1)
    monkeypatch.setattr(user_training.Training, "step", watched)
    with pytest.raises(KeyboardInterrupt):
        _run(shop, tmp_path)
    assert not (tmp_path / "user_states" / "k").exists()
    inputs = {name: ArtifactRef(name, "k", tmp_path / name / "k") for name in ("histories", "tokens")}
    resumed = run_stage(tmp_path, "user_states", user_states, CONFIG, inputs)
    assert steps == [*range(killed_at + 1), *range(killed_at, 3)], "what had been trained was kept"
    assert resumed.manifest["files"] == ref.manifest["files"]
    assert resumed.metrics == ref.metrics


def _cycle(users: int = 40, products: int = 20, length: int = 24) -> Shop:
    """Each product follows another, whoever buys: only the one before tells the next, popularity tells nothing."""
    order = np.random.default_rng(0).permutation(products)
    events = []
    for user in range(users):
        for number in range(length):
            product = order[(user + number) % products]
            ts = START - (length - number) * DAY + user
            events.append(event("purchase", f"u-{user:02d}", f"p-{product}", ts))
    return shop_of(events, [])


def test_a_planted_cycle_is_learned_far_beyond_popularity(tmp_path: Path) -> None:
    size = SMALL_MODEL.model_copy(update={"width": 32, "max_events": 64})
    schedule = UserSchedule(epochs=30, batch_users=10, negatives=64, lr=1e-2, valid_days=7, pool_days=1)
    metrics = _run(_cycle(), tmp_path, Config(t0=T0, architecture=size, schedule=schedule)).metrics
    assert metrics["popularity"]["item"] == pytest.approx(np.log(20), abs=0.05)
    assert metrics["validation"]["item"] < 0.3
    assert metrics["validation"]["pooled_item"] < 1.0


def test_the_last_days_before_t0_choose_the_state_and_train_nothing(shop: Shop, tmp_path: Path) -> None:
    inputs = publish_shop(shop, tmp_path)
    inputs["histories"] = run_stage(tmp_path, "histories", histories, histories.Config(), inputs)
    events = UserEvents.open(inputs, 64, 16, START, RunContext(threads=1))
    training = user_states.make_training(CONFIG, events, 0)
    split = START - CONFIG.schedule.valid_days * DAY
    for step in range(training.steps):
        task = training.task(step, np.random.default_rng(step))
        assert int(task.batch.visible.max()) < split
        assert len(task.pool_target) > 0
    training.train(tmp_path / "c.safetensors")
    assert [row["step"] for row in training.log] == [2, 3]
    best = min(training.log, key=lambda row: row["judged"])
    assert training.judge()[0] == best["validation"]


def test_a_log_that_starts_at_t0_gives_states_of_an_untrained_model(tmp_path: Path) -> None:
    bag = {"L1-0000": 1.0}
    tokens = [*token("product", "p-1", START, bag), *token("product", "p-1", START + 7 * DAY, bag)]
    shop = shop_of([event("purchase", "u-0", "p-1", START + DAY)], tokens)
    made = _run(shop, tmp_path)
    assert made.table("rows.parquet").to_pylist() == [{"user_id": "u-0", "as_of": START + 7 * DAY, "row": 0}]
    assert made.metrics["steps"] == 0
    assert made.metrics["validation"] == {}


def test_heads_that_do_not_part_the_width_are_refused(shop: Shop, tmp_path: Path) -> None:
    size = UserArchitecture(width=10, heads=4)
    with pytest.raises(UsageError, match="2 x heads"):
        _run(shop, tmp_path, Config(t0=T0, architecture=size))


def test_an_event_known_late_enters_the_states_late(tmp_path: Path) -> None:
    dates = [START + week * 7 * DAY for week in range(3)]
    tokens = [row for date in dates for row in token("product", "p-1", date, {"L1-0000": 1.0})]
    events = [event("purchase", "u-0", "p-1", START - day * DAY) for day in range(1, 40)]
    events.append(event("purchase", "u-0", "p-2", START - DAY // 2, known_at=dates[1] + 1))
    made = _run(shop_of(events, tokens), tmp_path / "with")
    assert [row["as_of"] for row in made.table("rows.parquet").to_pylist()] == [dates[0], dates[2]]
    without = _run(shop_of([*events[:-1], event("view", "u-1", "p-2", dates[2] + DAY)], tokens), tmp_path / "without")
    assert _states(without)["u-0", dates[0]] == _states(made)["u-0", dates[0]]


def test_primitives_that_tokens_name_later_move_nothing_before(ref: ArtifactRef, shop: Shop, tmp_path: Path) -> None:
    tokens = shop.tokens
    renamed = pc.and_(pc.greater(tokens["as_of"], START), pc.equal(tokens["primitive_id"], "L1-0001"))
    names = pc.if_else(renamed, "L1--new", tokens["primitive_id"])
    place = tokens.column_names.index("primitive_id")
    other = Shop(**(vars(shop) | {"tokens": tokens.set_column(place, tokens.schema.field(place), names)}))
    made = _run(other, tmp_path)
    assert sha256_file(made.file("model.safetensors")) == sha256_file(ref.file("model.safetensors"))
    assert made.json("user_model.json")["primitives"] == ref.json("user_model.json")["primitives"]
    first = {key: value for key, value in _states(ref).items() if key[1] == START}
    assert first
    assert first.items() <= _states(made).items()
    assert _states(made) != _states(ref)
