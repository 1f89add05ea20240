"""The outline and the matrix of the report: true to the vocabulary, plain HTML, and escaped."""

import re
from html.parser import HTMLParser

import pytest

from data.artifacts import OutputDir
from data.context import RunContext
from flows import report, report_tree
from flows.report_map import load_interests
from tests.flows.report_artifacts import FAMILIES, HOSTILE, Artifacts


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory):
    return Artifacts(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def interests(artifacts):
    return load_interests(artifacts.refs["supergraph"], 100, 5)


def page(artifacts, folder):
    report.run(report.Config(), artifacts.inputs(), OutputDir(folder, folder, "key"), RunContext(threads=1))
    return (folder / "report.html").read_text(encoding="utf-8")


class Outline(HTMLParser):
    """Rows of the outline as (depth, label, share, terms, products)."""

    def __init__(self, html):
        super().__init__()
        self.rows, self.depth, self.at = [], 0, None
        self.feed(html[html.index('<ul class="outline">') : html.index("<h3>What people turn to next")])

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        assert tag not in ("script", "img", "button", "a")
        assert not [name for name in given if name.startswith("on")]
        if tag == "li":
            self.depth += 1
            self.rows.append(
                {"depth": self.depth, "id": given["id"], "label": "", "share": "", "terms": "", "made": []}
            )
        elif tag == "span":
            self.at = given.get("class", "made")
            if self.at == "made":
                self.rows[-1]["made"].append("")

    def handle_endtag(self, tag):
        self.depth -= tag == "li"
        self.at = None if tag == "span" else self.at

    def handle_data(self, data):
        if self.rows and self.at == "made":
            self.rows[-1]["made"][-1] += data
        elif self.rows and self.at in self.rows[-1] and isinstance(self.rows[-1][self.at], str):
            self.rows[-1][self.at] += data


def test_every_primitive_stands_once_below_its_parent_heaviest_first(artifacts, tmp_path):
    rows = [row for row in Outline(page(artifacts, tmp_path)).rows if row["depth"]]
    assert len(rows) == len(artifacts.primitives) == 32
    parent, above = {}, {}
    for row in rows:
        name = row["id"].removeprefix("tree-")
        above[row["depth"]] = name
        parent[name] = above.get(row["depth"] - 1)
        known = next(p for p in artifacts.primitives if p["primitive_id"] == name)
        assert (row["label"], parent[name]) == (known["label"], known["parent_id"])
        assert row["terms"] == " · ".join(known["top_terms"])
        assert row["made"] == [artifacts.titles[artifacts.products.index(product)] for product in known["top_products"]]
        total = sum(p["mass"] for p in artifacts.primitives if p["level"] == known["level"])
        assert row["share"] == report_tree.percent(known["mass"] / total)
    shares = [float(row["share"].rstrip("%")) for row in rows if row["depth"] == 1]
    assert shares == sorted(shares, reverse=True)


def test_the_outline_counts_what_lies_below(interests):
    roots = report_tree.outline(interests)
    assert [root["below"] for root in roots] == [{2: 3}] * 8
    assert [len(root["children"]) for root in roots] == [3] * 8
    deep = [
        {"id": i, "level": level, "parent": parent, "label": i, "share": 0.5, "hue": 0, "terms": [], "products": []}
        for i, level, parent in (("a", 1, -1), ("b", 2, 0), ("c", 2, 0), ("d", 3, 1), ("e", 3, 2), ("f", 3, 1))
    ]
    (root,) = report_tree.outline(deep)
    assert root["below"] == {2: 2, 3: 3}
    assert [child["id"] for child in root["children"]] == ["b", "c"]
    assert [child["id"] for child in root["children"][0]["children"]] == ["d", "f"]


def test_the_matrix_is_the_directed_flow_between_broad_interests(artifacts, interests):
    found = report_tree.matrix(interests, artifacts.refs["supergraph"], "purchase")
    assert found["relation"] == "then_purchase"
    assert {interest["level"] for interest in found["interests"]} == {1}
    names = [interest["id"] for interest in found["interests"]]
    cells = {
        (names[row], names[column]): (cell["share"], cell["shade"])
        for row, line in enumerate(found["rows"])
        for column, cell in enumerate(line)
        if cell
    }
    assert cells == {
        ("L1-0000", "L1-0003"): (0.75, 1.0),
        ("L1-0000", "L1-0001"): (0.25, 0.333),
        ("L1-0005", "L1-0000"): (0.5, 0.667),
    }
    hues = [interest["hue"] for interest in found["interests"]]
    assert hues == sorted(hues)


def test_another_event_type_shows_what_flow_there_is_and_none_shows_no_matrix(artifacts, interests):
    assert report_tree.matrix(interests, artifacts.refs["supergraph"], "click")["relation"] == "then_purchase"
    finest = [interest for interest in interests if interest["level"] == 2]
    assert report_tree.matrix(finest, artifacts.refs["supergraph"], "purchase") is None


def test_matrix_and_outline_need_no_script_and_escape_what_people_wrote(artifacts, tmp_path):
    html = page(artifacts, tmp_path)
    section = html[html.index('<section id="tree"') : html.index('<section id="bags"')]
    assert HOSTILE not in section
    assert "&lt;img src=x" in section
    assert not {"<script", "<img", "<button", "<a "} & set(re.findall("<[a-z]+ ?", section))
    assert section.count("<details") == 8
    assert section.count("<details open") == 1
    assert section.count("<tr") == 1 + len(FAMILIES)
    assert " → " in section
    assert ": 75%" in section


def test_a_page_without_flow_or_levels_has_no_matrix(tmp_path):
    small = Artifacts(tmp_path / "store", users=8)
    small.publish("supergraph", levels=1, hostile=False, linked=False)
    html = page(small, tmp_path)
    assert '<table class="flow">' not in html
    assert html.count('class="leaf"') == 8


def test_percentages_have_a_decimal_where_it_tells():
    assert [report_tree.percent(share) for share in (0.123, 0.0994, 0.0999, 0.001)] == ["12%", "9.9%", "10%", "0.1%"]
