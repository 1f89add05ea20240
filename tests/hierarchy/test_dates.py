"""Files by date: lent when their cause is the same, made once, and finished ones survive a kill."""

import pytest

from data.artifacts import Store
from hierarchy.dates import Dates, cause_of, content_of
from tests.fixtures.artifacts import make_ref


def writer(text, calls):
    def make(path):
        calls.append(path.name)
        path.write_text(text)
        return len(text), {"said": text}

    return make


def made(store, key, files, previous=None, calls=None):
    calls = [] if calls is None else calls
    told = {}

    def write(out):
        dates = Dates(out, previous)
        for name, (cause, text) in files.items():
            dates.add(name, cause, writer(text, calls))
        told.update(facts=dates.write(), rows=dates.rows, lent=dates.lent)

    return make_ref(store, "dates", write, key), told, calls


def test_equal_causes_are_linked_and_others_made(store):
    first, _, _ = made(store, "one", {"d/1.json": ("a", "one"), "d/2.json": ("b", "two")})
    second, told, calls = made(store, "two", {"d/1.json": ("a", "never"), "d/2.json": ("c", "new")}, first)
    assert calls == ["2.json"]
    assert told == {"facts": [{"said": "one"}, {"said": "new"}], "rows": 6, "lent": 1}
    assert second.file("d/1.json").samefile(first.file("d/1.json"))
    assert second.rows("d/") == 6
    assert second.file("d/2.json").read_text() == "new"
    assert first.file("d/2.json").read_text() == "two"
    second.verify()


def test_an_artifact_without_a_record_lends_nothing(store):
    plain = make_ref(store, "dates", lambda out: out.write_json("d/1.json", {}), "plain")
    _, told, calls = made(store, "two", {"d/1.json": ("a", "one")}, plain)
    assert (told["lent"], calls) == (0, ["1.json"])


def test_what_a_killed_run_finished_is_not_made_again(tmp_path):
    store, calls = Store(tmp_path), []
    files = {"d/1.json": ("a", "one"), "d/2.json": ("b", "two")}

    def dies(out):
        dates = Dates(out, None)
        dates.add("d/1.json", "a", writer("one", calls))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_ref(store, "dates", dies, "key")
    again, _, _ = made(store, "key", files, None, calls)
    assert calls == ["1.json", "2.json"]
    assert again.file("d/1.json").read_text() == "one"


def test_causes_are_those_of_their_parts_and_of_an_artifacts_files(store):
    assert cause_of("a", [1, 2]) == cause_of("a", (1, 2)) != cause_of("a", [2, 1])
    one, _, _ = made(store, "one", {"d/1.json": ("a", "one")})
    other, _, _ = made(store, "other", {"d/1.json": ("a", "two")})
    assert content_of(one) != content_of(other)
    assert content_of(one, "d/1.json", "dates.json") == content_of(other, "d/1.json", "dates.json")
