"""A published set taken by instants: its split grows with its log, and day by day is the same as at once."""

import pytest

from data import ingest
from data.context import RunContext
from data.parts import EVENT_PARTS
from data.schema import from_micros
from data.sources.published import TEST_FROM, VALID_FROM
from data.sources.splits import SETS
from tests.fixtures import public_sets


@pytest.fixture
def read(tmp_path, store, make_ref):
    def run(name, key, as_of=None, previous=None):
        module, options = SETS[name]
        source = module.__name__.rpartition(".")[2]
        where = {"root": public_sets.write(name, tmp_path), **options}
        config = ingest.Config.model_validate({"source": source, source: where, "as_of": as_of})
        inputs = {} if previous is None else {"previous": previous}
        return make_ref(store, "events", lambda out: ingest.run(config, inputs, out, RunContext(threads=1)), key)

    return run


def parts_of(ref):
    return {row["part"] for row in ref.table("split.parquet").to_pylist()}


@pytest.mark.parametrize("name", ["gowalla", "amazon-scientific"])
def test_an_instant_before_a_part_shows_neither_its_rows_nor_its_split(read, name):
    train = read(name, "train", from_micros(VALID_FROM))
    valid = read(name, "valid", from_micros(TEST_FROM))
    assert (parts_of(train), parts_of(valid)) == ({"train"}, {"train", "valid"})
    for ref in (train, valid):
        named = {row["event_id"] for row in ref.table("split.parquet").to_pylist()}
        assert named == set(ref.table(EVENT_PARTS)["event_id"].to_pylist())


@pytest.mark.parametrize("name", ["gowalla", "amazon-scientific", "retailrocket", "movielens-100k"])
def test_by_steps_is_the_same_as_at_once(read, name):
    whole = read(name, "whole", from_micros(TEST_FROM + 1))
    step = None
    days = sorted(whole.table(EVENT_PARTS)["ts"].to_pylist())
    for index, moment in enumerate(sorted({days[0], days[len(days) // 2], days[-1], TEST_FROM})):
        step = read(name, f"step{index}", from_micros(moment + 1), step)
    for file in whole.manifest["files"]:
        if file.endswith(".parquet"):
            assert step.manifest["files"][file] == whole.manifest["files"][file], file
