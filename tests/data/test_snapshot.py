"""A snapshot is published by one rename; readers see the old one or the new one."""

import pytest

from data import snapshot
from data.errors import BadDataError


@pytest.fixture
def refs(store, make_ref):
    def write(number):
        return lambda out: out.write_json("a.json", number)

    return [{name: make_ref(store, name, write(i), f"k{i}") for name in ("events", "tokens")} for i in range(2)]


def test_current_names_the_newest_and_older_ones_stay_loadable(store, refs):
    first = snapshot.publish(store, refs[0], "v0", "m0", 10)
    second = snapshot.publish(store, refs[1], "v1", "m1", 20)
    assert snapshot.load(store) == second
    assert snapshot.load(store, first.id) == first
    assert second.ref(store, "tokens").json("a.json") == 1
    assert (first.as_of, first.stages) == (10, {"events": "k0", "tokens": "k0"})


def test_all_that_were_published_are_listed_and_a_draft_is_not(store, refs):
    assert snapshot.published(store) == []
    made = [snapshot.publish(store, refs[number], "v", "m", number) for number in (0, 1)]
    (store.root / "snapshots" / ".draft.json").write_text("{")
    assert snapshot.published(store) == sorted(made, key=lambda found: found.id)


def test_the_id_depends_on_the_artifacts_only(store, refs):
    one = snapshot.publish(store, refs[0], "v0", "m0", 10)
    again = snapshot.publish(store, dict(reversed(refs[0].items())), "v0", "m0", 10)
    assert one.id == again.id
    assert one.id != snapshot.publish(store, refs[1], "v0", "m0", 10).id


def test_a_crash_before_the_pointer_moves_leaves_the_old_snapshot(store, refs, monkeypatch):
    first = snapshot.publish(store, refs[0], "v0", "m0", 10)
    replaced = snapshot._replace

    def dies_at_current(path, text):
        if path.name == "CURRENT":
            raise KeyboardInterrupt
        replaced(path, text)

    monkeypatch.setattr(snapshot, "_replace", dies_at_current)
    with pytest.raises(KeyboardInterrupt):
        snapshot.publish(store, refs[1], "v1", "m1", 20)
    assert snapshot.load(store) == first


def test_what_is_missing_or_torn_is_said(store, refs):
    with pytest.raises(BadDataError, match="run `strata demo`"):
        snapshot.load(store)
    found = snapshot.publish(store, refs[0], "v0", "m0", 10)
    with pytest.raises(BadDataError, match=rf"expected snapshot 'x' in .*\['{found.id}'\]"):
        snapshot.load(store, "x")
    with pytest.raises(BadDataError, match=r"expected stage 'index', got \['events', 'tokens'\]"):
        found.ref(store, "index")
    (store.root / "snapshots" / f"{found.id}.json").write_text("{")
    with pytest.raises(BadDataError, match="is torn"):
        snapshot.load(store)
