"""Pictures of the report in a real browser: they stand in tiles, panel and bags, load, and carry the title as text."""

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

from data.artifacts import OutputDir
from data.context import RunContext
from flows import report
from tests.fixtures.browser import NEEDED, opened
from tests.fixtures.fashion import jpeg
from tests.flows.report_artifacts import HOSTILE, Artifacts

pytestmark = NEEDED


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """The page of a shop that has a picture of every product but each fifth."""
    folder, media = tmp_path_factory.mktemp("report"), tmp_path_factory.mktemp("media")
    artifacts = Artifacts(folder / "store")
    (media / "1.jpg").write_bytes(jpeg((200, 80, 20), (96, 128)))
    pictured = {name: "1.jpg" for index, name in enumerate(artifacts.products) if index % 5}
    artifacts.publish("events", images=pictured)
    config = report.Config(media_root=media)
    report.run(config, artifacts.inputs(), OutputDir(folder, folder, "key"), RunContext(threads=1))
    with opened(tmp_path_factory.mktemp("profile")) as driver:
        driver.get((folder / "report.html").as_uri())
        yield driver


def images(browser, place):
    return browser.find_elements(By.CSS_SELECTOR, f"{place} img")


def loaded(browser, image):
    return browser.execute_script("return arguments[0].complete && arguments[0].naturalWidth", image)


@pytest.mark.parametrize("place", ["#treemap .tile", "#panel .gallery", '[data-kind="user"]', '[data-kind="product"]'])
def test_pictures_load_and_say_what_they_show(browser, place):
    found = images(browser, place)
    assert found
    for image in found:
        assert loaded(browser, image) == 80
        assert "No. " in image.get_attribute("alt") or image.get_attribute("alt") == HOSTILE


def test_a_picture_stands_beside_its_own_title(browser):
    seen = 0
    for row in browser.find_elements(By.CSS_SELECTOR, '#panel .gallery li, [data-kind="user"] .events span'):
        for image in row.find_elements(By.TAG_NAME, "img"):
            assert image.get_attribute("alt") == row.text
            seen += 1
    assert seen > 3


def test_pictures_follow_what_is_chosen(browser):
    select = Select(browser.find_element(By.ID, "select-product"))
    shown = set()
    for place in range(len(select.options)):
        select.select_by_index(place)
        portrait = images(browser, '[data-kind="product"] .portrait')
        who = browser.find_element(By.CSS_SELECTOR, '[data-kind="product"] .who').text
        assert [image.get_attribute("alt") for image in portrait] in ([], [who])
        shown.add(len(portrait))
    assert shown == {0, 1}  # one without a picture is shown without that of another
    before = browser.find_element(By.CSS_SELECTOR, "#panel").text
    browser.execute_script("arguments[0].click()", browser.find_elements(By.CSS_SELECTOR, "#treemap .tile")[3])
    assert browser.find_element(By.CSS_SELECTOR, "#panel").text != before
    assert images(browser, "#panel .gallery")


def test_pictures_stay_within_their_tiles_and_the_page_within_the_window(browser):
    for tile in browser.find_elements(By.CSS_SELECTOR, "#treemap .tile"):
        outer = tile.rect
        for image in tile.find_elements(By.TAG_NAME, "img"):
            inner = image.rect
            assert outer["x"] <= inner["x"]
            assert inner["x"] + inner["width"] <= outer["x"] + outer["width"]
            assert outer["y"] <= inner["y"]
            assert inner["y"] + inner["height"] <= outer["y"] + outer["height"]
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 1280


def test_nothing_is_complained_of_and_no_foreign_text_runs(browser):
    assert browser.get_log("browser") == []
    assert browser.execute_script("return window.stolen") is None
