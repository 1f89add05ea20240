"""A log that grows: day by day equals at once, whatever comes twice, late, in disorder or not at all."""

import random
import shutil
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from data import ingest, parts, schema
from data.context import RunContext
from data.errors import BadDataError
from data.parts import EVENT_PARTS
from data.schema import MICROS_PER_DAY, to_micros
from tests.data.test_ingest import FIXTURES, shop_config, tables

START = datetime(2024, 1, 1, tzinfo=UTC)
TABLES = ("products", "advertisers", "campaigns", "users")


def day(number: float) -> datetime:
    return START + timedelta(days=number)


@pytest.fixture
def shop(tmp_path) -> Path:
    """The shop's first thirty days; some products and a campaign become known within them."""
    folder = tmp_path / "shop"
    folder.mkdir()
    for path in FIXTURES.glob("shop_*.csv"):
        shutil.copy(path, folder)
    until = to_micros(day(30)) // 1000
    rewrite(folder / "shop_events.csv", lambda rows: [row for row in rows if int(row.split(",")[6]) < until])
    listed = str(to_micros(day(12.5)) // 1000)
    later = str(to_micros(day(11)) // 1000)
    rewrite(
        folder / "shop_products.csv",
        lambda rows: [
            row.replace(row.split(",")[5].strip(), listed) if row[:4] in {"p003", "p010"} else row for row in rows
        ],
    )
    rewrite(
        folder / "shop_campaigns.csv",
        lambda rows: [row.replace("1705881600000", later) if row[:2] == "c1" else row for row in rows],
    )
    return folder


def rewrite(path: Path, change) -> None:
    header, *rows = path.read_text().splitlines(keepends=True)
    path.write_text(header + "".join(change(rows)))


@pytest.fixture
def grow(store, make_ref):
    """Ingest a folder at one instant after the other, each on top of the one before; returns the artifacts."""

    def run(folder, instants, previous=None, name="grow", **changes):
        refs = []
        for instant in instants:
            config = shop_config(folder, as_of=instant and instant.isoformat(), **changes)
            inputs = {"previous": previous} if previous else {}
            key = f"{name}{len(list((store.root / 'events').glob('*')))}"
            previous = make_ref(store, "events", partial(ingest.run, config, inputs, ctx=RunContext(threads=1)), key)
            refs.append(previous)
        return refs

    return run


def content(ref) -> dict[str, str]:
    """sha256 of the log's parts, the entities and the summary, which must not tell how the log came to be."""
    return {name: sha for name, sha in tables(ref).items() if name not in {"quarantine.parquet", "summary.json"}}


def rows_of(ref, **wanted):
    rows = ref.table(EVENT_PARTS).to_pylist()
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def test_day_by_day_equals_at_once_byte_for_byte(shop, grow):
    """Instants at midnight and within days; the log, the catalogue and the users are whole files throughout."""
    instants = [day(9), day(10), day(10.4), day(11), day(13), day(13.7), day(20)]
    refs = grow(shop, instants)
    for ref, instant in zip(refs, instants, strict=True):
        [whole] = grow(shop, [instant], name="whole")
        assert content(ref) == content(whole)
        assert ref.json("summary.json") == whole.json("summary.json")
        seen = [max(row["ts"] + 1, row["known_at"]) for row in ref.table(EVENT_PARTS).to_pylist()]
        assert max(seen) <= to_micros(instant)
        for name in TABLES:
            assert all(at <= to_micros(instant) for at in ref.table(f"{name}.parquet")["known_at"].to_pylist())
    assert refs[-1].table("products.parquet").num_rows > refs[0].table("products.parquet").num_rows
    assert refs[-1].table("campaigns.parquet").num_rows > refs[0].table("campaigns.parquet").num_rows


def test_finished_days_are_taken_as_they_are_and_only_new_rows_are_read(shop, grow):
    first, second = grow(shop, [day(10), day(11)])
    for name in first.names(EVENT_PARTS):
        assert second.file(name).samefile(first.file(name)), name
    assert second.metrics["parts_taken"] == len(first.names(EVENT_PARTS))
    new = second.rows(EVENT_PARTS) - first.rows(EVENT_PARTS)
    assert second.metrics["read"]["events"] == new > 0
    assert second.metrics["late_stamped"] == second.metrics["ingested_before"] == 0


def test_nothing_an_increment_adds_was_known_before_it(shop, grow):
    first, second = grow(shop, [day(10), day(13)])
    at = to_micros(day(10))
    for name in TABLES:
        column = schema.USERS.names[0] if name == "users" else f"{name[:-1]}_id"
        old = {row[column]: row for row in first.table(f"{name}.parquet").to_pylist()}
        for row in second.table(f"{name}.parquet").to_pylist():
            if row[column] in old:
                assert row["known_at"] == old[row[column]]["known_at"]
            else:
                assert row["known_at"] > at
    old = {row["event_id"] for row in rows_of(first)}
    assert all(max(row["ts"] + 1, row["known_at"]) > at for row in rows_of(second) if row["event_id"] not in old)


def split_by_day(folder: Path, until: int) -> None:
    """One file a day, with the rows that were logged on it."""
    whole = folder / "shop_events.csv"
    header, *rows = whole.read_text().splitlines(keepends=True)
    whole.unlink()
    for number in range(until):
        low, high = (to_micros(day(number + side)) // 1000 for side in (0, 1))
        mine = [row for row in rows if low <= int(row.split(",")[7]) < high]
        (folder / f"day{number:02d}.csv").write_text(header + "".join(mine))


def daily_config(config, count):
    events = config.files.events.model_copy(update={"paths": tuple(f"day{number:02d}.csv" for number in range(count))})
    return config.model_copy(update={"files": config.files.model_copy(update={"events": events})})


@pytest.fixture
def deliver(store, make_ref):
    """Ingest daily files as they come: day n's run sees the files of n days; returns the last artifact."""

    def run(folder, first, last, name="daily"):
        previous = None
        for number in range(first, last + 1):
            config = daily_config(shop_config(folder, as_of=day(number).isoformat()), number)
            inputs = {"previous": previous} if previous else {}
            previous = make_ref(
                store, "events", partial(ingest.run, config, inputs, ctx=RunContext(threads=1)), f"{name}{number}"
            )
        return previous

    return run


def test_daily_files_shuffled_and_delivered_three_times_equal_the_clean_log(shop, grow, deliver):
    [clean] = grow(shop, [day(14)])
    split_by_day(shop, 14)
    for number in range(14):
        path = shop / f"day{number:02d}.csv"

        def thrice(rows, number=number):
            rows = rows * 3
            random.Random(number).shuffle(rows)
            return rows

        rewrite(path, thrice)
    # Days 3 and 9 come once more, beside what is new, on days 11 and 12.
    for again, late in ((3, 11), (9, 12)):
        earlier = (shop / f"day{again:02d}.csv").read_text().splitlines(keepends=True)[1:]
        rewrite(shop / f"day{late:02d}.csv", lambda rows, earlier=earlier: [*earlier, *rows])
    ref = deliver(shop, 8, 14)
    assert content(ref) == content(clean)
    assert ref.metrics["late_stamped"] == 0


def test_files_read_before_are_not_opened_again(shop, deliver, monkeypatch):
    from data.sources import cells

    split_by_day(shop, 11)
    opened = []
    real = cells.open_file
    monkeypatch.setattr(
        cells, "open_file", lambda link, path, *rest: opened.append(path.name) or real(link, path, *rest)
    )
    deliver(shop, 10, 11, "again")
    second = opened[len(opened) - opened[::-1].index("shop_products.csv") - 1 :]
    assert {name for name in second if name.startswith("day")} == {"day10.csv"}


LATE = "late-1,u004,p001,a00,,bought,{at},{at},3.5,store,\n"


def late_row(number: float) -> str:
    return LATE.format(at=to_micros(day(number)) // 1000)


def test_a_late_row_is_stamped_and_changes_no_finished_day(shop, grow):
    [first] = grow(shop, [day(10)])
    rewrite(shop / "shop_events.csv", lambda rows: [*rows, late_row(4.5)])
    [second] = grow(shop, [day(11)], first)
    [late] = rows_of(second, event_id="late-1")
    assert late["ts"] == to_micros(day(4.5))
    assert late["known_at"] == to_micros(day(10)) + 1
    assert second.metrics["late_stamped"] == 1
    assert second.metrics["late_events"] >= 1
    for name in first.names(EVENT_PARTS):
        assert second.manifest["files"][name] == first.manifest["files"][name]
    [third] = grow(shop, [day(12)], second)
    assert len(rows_of(third, event_id="late-1")) == 1
    assert third.metrics["late_stamped"] == 0


def test_a_stamped_row_that_comes_again_is_the_same_event(shop, grow):
    [first] = grow(shop, [day(10)])
    rewrite(shop / "shop_events.csv", lambda rows: [*rows, late_row(4.5)])
    [second] = grow(shop, [day(11)], first)
    rewrite(shop / "shop_events.csv", lambda rows: [late_row(4.5), *rows])
    [third] = grow(shop, [day(12)], second)
    assert len(rows_of(third, event_id="late-1")) == 1
    assert third.metrics["ingested_before"] > 1
    assert "events: conflicting_duplicate" not in third.metrics["quarantined"]


def test_a_late_row_is_dropped_and_counted_when_so_configured(shop, grow):
    [first] = grow(shop, [day(10)], late="drop")
    rewrite(shop / "shop_events.csv", lambda rows: [*rows, late_row(4.5)])
    [second] = grow(shop, [day(11)], first, late="drop")
    assert rows_of(second, event_id="late-1") == []
    assert second.metrics["late_dropped"] == 1


def test_events_known_too_late_are_set_aside_and_do_not_count_as_bad(shop, grow):
    [first] = grow(shop, [day(10)], max_bad=0, max_lateness_days=2)
    rewrite(shop / "shop_events.csv", lambda rows: [*rows, late_row(4.5), late_row(8.5).replace("late-1", "late-2")])
    [second] = grow(shop, [day(11)], first, max_bad=0, max_lateness_days=2)
    assert rows_of(second, event_id="late-1") == []
    assert len(rows_of(second, event_id="late-2")) == 1
    assert second.metrics["quarantined"] == {"events: too_late": 1}
    [found] = second.table("quarantine.parquet").to_pylist()
    assert (found["column"], found["value"]) == ("known_at", "5.50 days")


def test_a_row_that_contradicts_an_earlier_one_is_set_aside(shop, grow):
    [first] = grow(shop, [day(10)])
    lines = (shop / "shop_events.csv").read_text().splitlines(keepends=True)
    told = next(line for line in lines if ",bought," in line)
    other = told.split(",")
    other[8] = "99.5"
    rewrite(shop / "shop_events.csv", lambda rows: [*rows, ",".join(other)])
    [second] = grow(shop, [day(11)], first, max_bad=0.5)
    assert second.metrics["quarantined"] == {"events: conflicting_duplicate": 1}
    assert rows_of(second, event_id=other[0]) == rows_of(first, event_id=other[0])


def test_a_delivery_with_a_later_time_of_reading_is_the_same_event(shop, grow):
    lines = (shop / "shop_events.csv").read_text().splitlines(keepends=True)[1:]
    again = lines[5].split(",")
    again[7] = str(int(again[7]) + 3 * 86_400_000)
    [clean] = grow(shop, [day(10)])
    rewrite(shop / "shop_events.csv", lambda rows: [",".join(again), *rows])
    [twice] = grow(shop, [day(10)])
    assert content(twice) == content(clean)


def test_a_day_without_events_adds_no_part(shop, grow):
    rewrite(
        shop / "shop_events.csv",
        lambda rows: [row for row in rows if day_index(row) != 12],
    )
    refs = grow(shop, [day(12), day(13), day(14)])
    assert refs[1].names(EVENT_PARTS) == refs[0].names(EVENT_PARTS)
    assert refs[1].metrics["read"]["events"] == 0
    assert refs[1].json("summary.json")["counts"] == refs[0].json("summary.json")["counts"]
    assert content(refs[2]) == content(grow(shop, [day(14)])[0])


def day_index(row: str) -> int:
    at = row.split(",")
    return max(int(at[6]), int(at[7])) * 1000 // MICROS_PER_DAY - to_micros(START) // MICROS_PER_DAY


def test_an_instant_before_every_event_is_refused(shop, grow):
    with pytest.raises(BadDataError, match="choose a later as_of"):
        grow(shop, [day(-3)])


def test_an_entity_described_anew_keeps_when_it_was_known(shop, grow):
    [first] = grow(shop, [day(10)])
    rewrite(
        shop / "shop_products.csv",
        lambda rows: [
            row.replace("Rustic Espresso", "Fine Espresso")
            for row in rows
            if row[:4] in {"p000", "p001", "p003", "p010"}
        ],
    )
    (shop / "shop_products.csv").write_text(
        (shop / "shop_products.csv").read_text() + f"new1,a00,New Tea,Drinks > Tea,Mini,{to_micros(day(2)) // 1000}\n"
    )
    [second] = grow(shop, [day(11)], first)
    old, new = (
        {row["product_id"]: row for row in ref.table("products.parquet").to_pylist()} for ref in (first, second)
    )
    assert set(old) < set(new), "what the new file leaves out stays"
    assert new["p000"]["title"].startswith("Fine Espresso")
    assert new["p000"]["known_at"] == old["p000"]["known_at"]
    assert new["p005"] == old["p005"]
    assert new["new1"]["known_at"] == to_micros(day(10)) + 1
    [third] = grow(shop, [day(12)], second)
    again = {row["product_id"]: row for row in third.table("products.parquet").to_pylist()}
    assert again["p000"] == new["p000"]
    assert again["new1"] == new["new1"]


def test_ingest_without_a_previous_is_the_whole_log_whatever_the_instant(shop, grow):
    later, earlier = grow(shop, [day(12)])[0], grow(shop, [day(9)])[0]
    assert set(parts.days(earlier)) < set(parts.days(later))


def test_settings_of_growth_enter_the_key_of_own_files_only():
    journey = ingest.Config()
    assert journey.model_copy(update={"late": "drop"}).result_fields() == journey.result_fields()
    own = shop_config(FIXTURES)
    assert own.model_copy(update={"late": "drop"}).result_fields() != own.result_fields()
    with_date = own.model_copy(update={"as_of": day(3)})
    assert with_date.result_fields() != own.result_fields()
    assert with_date.lineage_fields() == own.lineage_fields()
