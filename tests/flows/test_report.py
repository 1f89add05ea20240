"""The report page: escaped, self-contained, deterministic, and true to the artifacts."""

from html.parser import HTMLParser

import numpy as np
import pytest

from data.artifacts import OutputDir
from data.context import RunContext
from data.parts import EVENT_PARTS
from flows import report, report_bags, report_map, report_tables
from tests.flows.report_artifacts import AS_OF, DAY, HOSTILE, START, Artifacts, page_data


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory):
    return Artifacts(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def html(artifacts, tmp_path_factory):
    return make_page(artifacts, tmp_path_factory.mktemp("report"))


def make_page(artifacts, folder, seed=0, **settings):
    out = OutputDir(folder, folder, "key")
    metrics = report.run(report.Config(**settings), artifacts.inputs(), out, RunContext(seed=seed))
    html = (folder / "report.html").read_text(encoding="utf-8")
    assert metrics["bytes"] == len(html.encode())
    return html


class Tags(HTMLParser):
    """Every tag with its attributes, and the words outside scripts and styles."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.words, self.inside = [], "", None
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.inside = tag

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside not in ("script", "style"):
            self.words += data + "\n"


def test_page_asks_for_nothing_outside_and_its_policy_forbids_it(html):
    tags = Tags(html).tags
    assert not [tag for tag, _ in tags if tag in ("img", "iframe", "object", "embed", "base")]
    links = [value for _, attributes in tags for name, value in attributes.items() if name in ("src", "href")]
    assert all(link.startswith(("#", "data:")) for link in links)
    assert "url(" not in html
    assert "@import" not in html
    policy = next(a["content"] for _, a in tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy.partition("script-src")[2].partition(";")[0]


def test_hostile_text_of_every_artifact_stays_text(html):
    tags = Tags(html).tags
    assert len([tag for tag, _ in tags if tag == "script"]) == 2
    assert not [attributes for _, attributes in tags if any(name.startswith("on") for name in attributes)]
    assert "\u2028" not in html[html.index('type="application/json"') : html.index("</script>")]
    data = page_data(html)
    assert any(interest["label"] == HOSTILE for interest in data["interests"])
    cards = [card for kind in data["bags"].values() for card in kind]
    assert any(HOSTILE in card["name"] for card in cards)
    assert any(HOSTILE in fact for card in cards for fact in card["facts"])


def test_equal_inputs_give_an_equal_page(artifacts, html, tmp_path):
    assert make_page(artifacts, tmp_path) == html


def test_page_names_versions_dates_and_rows(html):
    words = Tags(html).words
    for expected in ("2017-09-17", "2017-03-01 to 2017-10-07", "vocabulary-1", "model-1", "1,200"):
        assert expected in words, expected


def test_share_of_every_level_adds_up_and_parents_come_first(html):
    data = page_data(html)
    assert data["levels"] == [1, 2]
    for level in data["levels"]:
        assert sum(i["share"] for i in data["interests"] if i["level"] == level) == pytest.approx(1, abs=1e-4)
    for index, interest in enumerate(data["interests"]):
        assert interest["parent"] < index
        parent = data["interests"][interest["parent"]]
        if interest["level"] == 2:
            assert parent["id"] == f"L1-{int(interest['id'][3:]) // 3:04d}"
            assert interest["hue"] == parent["hue"]
            assert interest["coarse"] == interest["parent"]
    assert len({i["hue"] for i in data["interests"] if i["level"] == 1}) == 8


def test_neighbours_are_the_nearest_of_the_same_level(artifacts, html):
    rows = {row["primitive_id"]: np.array(row["vector"]) for row in artifacts.primitives}
    interests = page_data(html)["interests"]
    chosen = interests[-1]
    fine = [i for i in interests if i["level"] == 2 and i is not chosen]
    best = max(fine, key=lambda other: rows[other["id"]] @ rows[chosen["id"]])
    place, cosine = chosen["near"][0]
    assert interests[place] == best
    assert cosine == pytest.approx(rows[best["id"]] @ rows[chosen["id"]], abs=0.006)
    assert len(chosen["near"]) == 5


def test_flow_edges_are_listed_and_parent_links_are_not(html):
    interests = page_data(html)["interests"]
    flows = {i["id"]: [interests[f]["id"] for f in i["flows"]] for i in interests if i["flows"]}
    assert flows == {"L1-0000": ["L1-0002"]}
    followed = {i["id"]: [interests[f]["id"] for f in i["next"]] for i in interests if i["next"]}
    assert followed == {"L1-0000": ["L1-0003", "L1-0001"], "L1-0005": ["L1-0000"]}


def test_only_the_heaviest_interests_are_kept_and_shares_stay_those_of_the_whole_level(artifacts, tmp_path):
    everything = page_data(make_page(artifacts, tmp_path))["interests"]
    some = page_data(make_page(artifacts, tmp_path, interests=4))["interests"]
    assert len(some) == 8
    heavy = [i for i in everything if i["level"] == 1][:4]
    assert [(i["id"], i["share"]) for i in some[:4]] == [(i["id"], i["share"]) for i in heavy]
    assert all(i["parent"] in (-1, 0, 1, 2, 3) for i in some[4:])


def test_bag_is_the_newest_one_with_its_weights_and_residual(artifacts, html):
    data = page_data(html)
    card = data["bags"]["user"][0]
    owner = int(card["id"].removeprefix("user"))
    assert card["bag"]["as_of"] == "2017-09-17"
    first, second = card["bag"]["levels"]
    names = [(data["interests"][place]["id"], weight) for place, weight in first["tokens"]]
    assert names == [(f"L1-{owner % 8:04d}", 0.75), (f"L1-{(owner + 1) % 8:04d}", 0.25)]
    assert first["residual"] == 0.125
    assert [weight for _, weight in second["tokens"]] == [0.7, 0.2, 0.1]
    assert card["bag"]["sentence"].startswith(f"Mostly {data['interests'][first['tokens'][0][0]]['label']} (75%)")


def test_recent_events_are_titles_known_before_the_bag(artifacts, html):
    events = artifacts.refs["events"].table(EVENT_PARTS).to_pylist()
    card = page_data(html)["bags"]["user"][0]
    mine = [row for row in events if row["user_id"] == card["id"] and row["ts"] < AS_OF]
    newest = max(mine, key=lambda row: row["ts"])
    day, title, times = card["events"]["rows"][0]
    assert title == artifacts.titles[artifacts.products.index(newest["product_id"])]
    assert day < "2017-09-17"
    assert times >= 1
    assert max(row["ts"] for row in events if row["user_id"] == card["id"]) > AS_OF


def test_an_event_known_late_is_not_shown_before_it_was_known(tmp_path):
    events = Artifacts(tmp_path, users=8).publish("events", known_after_days=5)
    mine = [row for row in events.table(EVENT_PARTS).to_pylist() if row["user_id"] == "user0"]
    until = min(row["ts"] for row in mine) + 5 * DAY
    assert report_bags.recent(events, {"user0": until - 1}, "purchase", 99) == {"user0": []}
    known = [row for row in mine if row["known_at"] <= until]
    assert sum(times for _, _, times in report_bags.recent(events, {"user0": until}, "purchase", 99)["user0"]) == len(
        known
    )
    assert report_bags.recent(events, {"user0": START}, "purchase", 5) == {"user0": []}


def test_recent_events_of_one_day_and_product_are_one_line_newest_first(artifacts):
    shown = report_bags.recent(artifacts.refs["events"], {"user0": AS_OF, "nobody": AS_OF}, "purchase", 1000)
    lines = [(day, product) for day, product, _ in shown["user0"]]
    assert len(set(lines)) == len(lines) > 10
    assert [day for day, _ in lines] == sorted((day for day, _ in lines), reverse=True)
    assert shown["nobody"] == []


def test_examples_show_every_coarse_interest_before_any_twice(html):
    cards = page_data(html)["bags"]["user"]
    broad = [card["bag"]["levels"][0]["tokens"][0][0] for card in cards]
    assert len(cards) == 30
    assert len(set(broad[:8])) == 8


def test_log_without_purchases_shows_the_next_best_events(tmp_path):
    artifacts = Artifacts(tmp_path / "store", users=16)
    artifacts.publish("events", event_type="click")
    card = page_data(make_page(artifacts, tmp_path))["bags"]["user"][0]
    assert card["events"]["heading"].startswith("Clicked last")
    assert card["facts"][-1].endswith("clicks")


def test_log_without_a_clock_shows_no_dates(tmp_path):
    artifacts = Artifacts(tmp_path / "store", users=16)
    artifacts.publish("events", time_kind="order")
    html = make_page(artifacts, tmp_path)
    card = page_data(html)["bags"]["user"][0]
    assert card["events"]["heading"] == "Bought last"
    assert {day for day, _, _ in card["events"]["rows"]} == {""}
    assert "2017-" not in Tags(html).words


def test_one_level_of_few_interests_still_makes_a_page(tmp_path):
    artifacts = Artifacts(tmp_path / "store", users=16)
    artifacts.publish("supergraph", levels=1, hostile=False)
    data = page_data(make_page(artifacts, tmp_path))
    assert data["levels"] == [1]
    assert all(0 <= i["x"] <= 1 and 0 <= i["y"] <= 1 for i in data["interests"])
    assert data["dots"] == []


@pytest.mark.parametrize("count", [0, 1, 2, 5, 13])
def test_plane_is_finite_within_bounds_and_repeatable_for_any_count(count):
    vectors = np.random.default_rng(0).normal(size=(count, 6))
    placed = report_map.plane(vectors)
    assert placed.shape == (count, 2)
    assert np.isfinite(placed).all()
    assert ((placed >= 0) & (placed <= 1)).all()
    assert np.array_equal(placed, report_map.plane(vectors))


def test_seed_decides_which_products_are_drawn(artifacts, tmp_path):
    drawn = [page_data(make_page(artifacts, tmp_path, seed=seed, dots=9))["dots"] for seed in (0, 0, 1)]
    assert len(drawn[0]) == 9
    assert drawn[0] == drawn[1] != drawn[2]


def test_product_lies_at_the_weighted_mean_of_its_finest_interests():
    interests = [
        {"id": "L1-0000", "x": 0.9, "y": 0.9, "coarse": 0},
        {"id": "L2-0000", "x": 0.0, "y": 0.0, "coarse": 0},
        {"id": "L2-0001", "x": 1.0, "y": 0.5, "coarse": 0},
    ]
    rows = [("L1-0000", 1, 1.0), ("L2-0000", 2, 0.25), ("L2-0001", 2, 0.75), ("L2-0009", 2, 0.5)]
    bags = {"p": [{"primitive_id": i, "level": level, "weight": w} for i, level, w in rows]}
    assert report_map.product_dots(interests, bags) == {"p": [0.75, 0.375, 0]}


def found(method, protocol, recall, split="test", **more):
    return {"method": method, "protocol": protocol, "split": split, "recall@20": recall, "users": 1234, **more}


def test_retrieval_table_marks_the_best_of_each_column_and_tells_absent_from_too_few():
    few = found("learner", "cold", None, note="too few: 12 positives")
    table = report_tables.retrieval([found("item-kNN", "all", 0.2), found("learner", "all", 0.3), few])
    assert [row["cells"] for row in table["rows"]] == [
        ["item-kNN", "0.2000", ""],
        ["Learner (this pipeline)", "0.3000", "–"],
    ]
    assert [list(row["best"]) for row in table["rows"]] == [[], [1]]
    assert table["notes"] == [
        "All choices, test: 1,234 people; New to everyone, test: 1,234 people (too few: 12 positives)."
    ]
    assert report_tables.retrieval([])["rows"] == []


def test_retrieval_tile_names_a_baseline_that_is_better():
    rows = [found("learner", "all", 0.3), found("own frequency", "all", 0.4), found("popularity", "all", 0.1)]
    (tile,) = report_tables.retrieval_tile([*rows, found("learner", "all", 0.9, split="validation")])
    assert tile["value"] == "30.0%"
    assert tile["note"].endswith("best baseline: own frequency, 40.0%")
    assert report_tables.retrieval_tile(rows[1:]) == []
    assert "baseline" not in report_tables.retrieval_tile(rows[:1])[0]["note"]


def test_index_table_shows_what_the_stage_measured(artifacts):
    rows = report_tables.search_index(artifacts.refs["index"].metrics)["rows"]
    assert [row["cells"] for row in rows] == [["products", "96", "1.0000"], ["users", "40", "0.9877"]]
    assert report_tables.search_index({})["rows"] == []


def test_cost_table_reaches_stages_that_are_not_inputs_and_skips_deleted_ones(artifacts, tmp_path):
    refs = report_tables.collect_manifests(artifacts.inputs())
    names = [ref.stage for ref in refs]
    assert {"learner", "examples"} <= set(names)
    assert names.index("events") < names.index("learner") < names.index("supergraph")
    table = report_tables.cost(refs)
    total = sum(ref.manifest["duration_s"] for ref in refs)
    assert table["rows"][-1]["cells"][1] == f"{total:.1f}"
    gone = dict(artifacts.inputs())
    moved = Artifacts(tmp_path / "store", users=8)
    gone["ranker"] = moved.refs["ranker"]
    for path in (moved.store.root / "examples").rglob("*"):
        if path.is_file():
            path.unlink()
    assert "examples" not in [ref.stage for ref in report_tables.collect_manifests({"ranker": moved.refs["ranker"]})]


def test_number_cells():
    assert report_tables.figure(1234567) == "1,234,567"
    assert report_tables.figure(0.12345, 2) == "0.12"
    assert report_tables.figure(None) == "–"
    assert report_tables.figure(float("nan")) == "–"


def test_page_refuses_numbers_that_json_cannot_hold(artifacts):
    with pytest.raises(ValueError, match="JSON"):
        report.render(report.Config(), artifacts.inputs(), {"interests": [], "bags": {}, "x": float("nan")})


def test_every_setting_is_described():
    assert all(field.description for field in report.Config.model_fields.values())


def test_what_changed_since_the_vocabulary_before_is_told_only_where_there_was_one(html):
    assert "Since the vocabulary before" not in html
    first = {"previous": None, "levels": [{"level": 1, "kept": 0, "minted": 4, "retired": 0}]}
    assert list(report_tables.churn(first)["rows"]) == report_tables.churn({})["rows"] == []
    changes = {"strongest_changed": 0.031, "raw_strongest_changed": 0.94, "bag_change": 0.1, "raw_bag_change": 0.9}
    known = {"level": 1, "kept": 3, "minted": 1, "retired": 2, "entities": 90, **changes}
    unknown = {"level": 2, "kept": 0, "minted": 1200, "retired": 0}
    rows = report_tables.churn({"previous": "v1", "levels": [known, unknown]})["rows"]
    assert [row["cells"] for row in rows] == [
        ["Level 1", "3", "1", "2", "3.1% (94.0%)", "10.0% (90.0%)"],
        ["Level 2", "0", "1,200", "0", "–", "–"],
    ]
