"""The report in a real browser: it draws, answers clicks and keys, runs no foreign text, asks nothing outside."""

import json
import time

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from data.artifacts import OutputDir
from data.context import RunContext
from flows import report
from tests.fixtures.browser import NEEDED, opened
from tests.flows.report_artifacts import HOSTILE, Artifacts

pytestmark = NEEDED
CONTRASTS = """
const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
const over = (colours) => {
  pen.clearRect(0, 0, 1, 1);
  for (const colour of colours) { pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1); }
  return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3);
};
const light = (rgb) => rgb.map((c) => c / 255).map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
  .reduce((sum, c, i) => sum + [0.2126, 0.7152, 0.0722][i] * c, 0);
const grounds = (node) => (node ? [...grounds(node.parentElement), getComputedStyle(node).backgroundColor] : []);
const contrast = (node) => {
  const ground = grounds(node), ink = getComputedStyle(node).color;
  const [low, high] = [light(over(ground)), light(over([...ground, ink]))].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
};
const least = (name) => Math.min(...[...document.querySelectorAll(name)].map(contrast));
return Object.fromEntries(arguments[0].map((name) => [name, least(name)]));
"""
"""Least contrast (WCAG 2, 1 to 21) between text and ground of each selector's nodes."""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    artifacts = Artifacts(folder / "store")
    report.run(report.Config(), artifacts.inputs(), OutputDir(folder, folder, "key"), RunContext(threads=1))
    return folder / "report.html"


@pytest.fixture(scope="module")
def browser(page, tmp_path_factory):
    with opened(tmp_path_factory.mktemp("profile")) as driver:
        started = time.monotonic()
        driver.get(page.as_uri())
        driver.opened_in = time.monotonic() - started
        yield driver


def text(browser, selector):
    return browser.find_element(By.CSS_SELECTOR, selector).text


def click(browser, selector, place=0):
    node = browser.find_elements(By.CSS_SELECTOR, selector)[place]
    browser.execute_script("arguments[0].dispatchEvent(new MouseEvent('click', {bubbles: true}))", node)


def test_page_opens_fast_and_is_small(browser, page):
    assert browser.opened_in < 3
    assert page.stat().st_size < 15_000_000
    assert len(browser.find_elements(By.CSS_SELECTOR, "#map circle.interest")) == 8


def test_levels_redraw_map_and_tree_and_a_primitive_changes_the_panel(browser):
    click(browser, "#levels button", 1)
    assert len(browser.find_elements(By.CSS_SELECTOR, "#treemap .tile")) == 24
    assert len(browser.find_elements(By.CSS_SELECTOR, "#map circle.interest")) == 24
    seen = set()
    for place in (3, 7):
        click(browser, "#treemap .tile", place)
        panel = text(browser, "#panel")
        label = browser.find_element(By.CSS_SELECTOR, '#treemap .tile[aria-pressed="true"]').get_attribute("title")
        assert label.partition(",")[0] in panel
        for heading in ("Part of", "Words that set it apart", "Typical products", "Nearest interests"):
            assert heading in panel
        seen.add(panel)
    assert len(seen) == 2
    click(browser, "#levels button", 0)
    assert "Level 1 interest" in text(browser, "#panel")


def test_band_zooms_in_and_the_trail_leads_back(browser):
    click(browser, "#levels button", 1)
    click(browser, "#treemap .band", 0)
    assert len(browser.find_elements(By.CSS_SELECTOR, "#treemap .tile")) == 3
    assert "›" in text(browser, "#trail")
    click(browser, "#trail button", 0)
    assert len(browser.find_elements(By.CSS_SELECTOR, "#treemap .tile")) == 24


def test_keyboard_moves_between_shapes_and_chooses_one(browser):
    click(browser, "#levels button", 0)
    for group in ("#treemap", "#map"):
        stops = browser.find_elements(By.CSS_SELECTOR, f'{group} [tabindex="0"]')
        assert len(stops) == 1
        browser.execute_script("arguments[0].focus()", browser.find_element(By.CSS_SELECTOR, f"{group} [data-stop]"))
        click(browser, f"{group} [data-stop]")
        before = text(browser, "#panel")
        browser.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
        browser.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
        focused = browser.switch_to.active_element
        assert focused.get_attribute("data-stop")
        name = focused.get_attribute("aria-label").partition(",")[0]
        focused.send_keys(Keys.ENTER)
        panel = text(browser, "#panel")
        assert panel != before
        assert name in panel
        assert browser.switch_to.active_element.get_attribute("aria-label").startswith(name)


def test_search_finds_an_interest_of_another_level(browser):
    click(browser, "#levels button", 0)
    box = browser.find_element(By.ID, "find")
    box.clear()
    box.send_keys("rye bread", Keys.ENTER)
    assert "Rye Bread" in text(browser, "#panel h3")
    assert "Level 2 interest" in text(browser, "#panel")


def test_map_zooms(browser):
    def spread():
        return browser.execute_script(
            "const x = [...document.querySelectorAll('#map .interest')].map((c) => +c.getAttribute('cx'));"
            "return Math.max(...x) - Math.min(...x)"
        )

    before = spread()
    click(browser, "#zoom-in")
    assert spread() == pytest.approx(1.6 * before, rel=0.01)
    click(browser, "#zoom-reset")
    assert spread() == pytest.approx(before)


@pytest.mark.parametrize("kind", ["user", "product", "advertiser"])
def test_another_entity_can_be_selected(browser, kind):
    body = f'[data-kind="{kind}"] .bag-body'
    before = text(browser, body)
    select = Select(browser.find_element(By.ID, f"select-{kind}"))
    select.select_by_index(len(select.options) - 1)
    after = text(browser, body)
    assert after != before
    assert "residual" in after
    assert "%" in after


def test_interest_in_a_bag_leads_to_the_map(browser):
    link = browser.find_elements(By.CSS_SELECTOR, '[data-kind="user"] .bar .link')[-1]
    browser.execute_script("arguments[0].click()", link)
    assert text(browser, "#panel h3") == link.text


@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_sticks_out_sideways(browser, width):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_tree_opens_without_scripts_and_fits_a_phone(browser, page):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 400, "height": 900, "deviceScaleFactor": 1, "mobile": True}
    )
    try:
        browser.get(page.as_uri())
        leaf = browser.find_elements(By.CSS_SELECTOR, ".outline > li:nth-child(2) .leaf")[0]
        assert not leaf.is_displayed()
        browser.find_element(By.CSS_SELECTOR, ".outline > li:nth-child(2) summary").click()
        assert leaf.is_displayed()
        assert leaf.rect["x"] + leaf.rect["width"] <= 400
        summaries = browser.find_elements(By.CSS_SELECTOR, ".outline > li > details:not([open]) > summary")
        for summary in summaries:
            summary.click()
        shown = [leaf for leaf in browser.find_elements(By.CSS_SELECTOR, ".outline .leaf") if leaf.is_displayed()]
        assert len(shown) == 24
        assert all(leaf.rect["x"] + leaf.rect["width"] <= 400 for leaf in shown)
        assert browser.find_element(By.TAG_NAME, "body").rect["width"] <= 400
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.get(page.as_uri())


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground_in_light_and_in_dark(browser, scheme):
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    try:
        found = browser.execute_script(
            CONTRASTS, [".lead", ".outline .label", ".outline .terms", ".made span", ".flow td"]
        )
        assert min(found.values()) >= 4.5, found
        body = browser.execute_script("return getComputedStyle(document.documentElement).backgroundColor")
        assert (sum(map(int, body.removeprefix("rgb(").removesuffix(")").split(","))) < 300) == (scheme == "dark")
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_hostile_text_is_shown_and_never_run(browser):
    assert "<img src=x onerror=" in HOSTILE
    shown = set()
    for kind in ("user", "product", "advertiser"):
        select = Select(browser.find_element(By.ID, f"select-{kind}"))
        for place, option in enumerate(option.text for option in select.options):
            if "<img" in option:
                select.select_by_index(place)
                assert "<img src=x onerror=" in text(browser, f'[data-kind="{kind}"] .who')
                shown.add(kind)
    assert "advertiser" in shown
    assert browser.execute_script("return window.stolen") is None
    assert not browser.find_elements(By.TAG_NAME, "img")
    assert len(browser.find_elements(By.TAG_NAME, "script")) == 2


def test_no_console_message_and_no_request_outside(browser, page):
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
    asked = {request["request"]["url"] for request in sent if request["documentURL"] == page.as_uri()}
    assert page.as_uri() in asked
    outside = {url for url in asked if url != page.as_uri() and not url.startswith(("data:", "blob:"))}
    assert not outside
