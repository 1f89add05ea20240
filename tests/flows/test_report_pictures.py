"""Pictures in the report: small, decoded apart, written anew, with the title as text; and none where there are none."""

import base64
import io

import pytest
from PIL import Image

from data.artifacts import OutputDir
from data.context import RunContext
from flows import report, report_pictures
from tests.fixtures.fashion import jpeg
from tests.flows.report_artifacts import HOSTILE, Artifacts, page_data

RED, BLUE = (220, 20, 20), (20, 20, 220)
SECRET = b"the canary that no picture may carry"


@pytest.fixture(scope="module")
def media(tmp_path_factory):
    """Pictures of products p000 (red), p001 (blue, with words hidden behind it), and files that give no picture."""
    root = tmp_path_factory.mktemp("media")
    (root / "red.jpg").write_bytes(jpeg(RED, (300, 400)))
    (root / "blue.jpg").write_bytes(jpeg(BLUE, (400, 300)) + SECRET)
    (root / "broken.jpg").write_bytes(jpeg(RED, (300, 400))[:200])
    (root / "page.jpg").write_text(HOSTILE)
    (root.parent / "outside.jpg").write_bytes(jpeg(RED))
    return root


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory):
    made = Artifacts(tmp_path_factory.mktemp("store"))
    paths = {
        0: "red.jpg",
        1: "blue.jpg",
        2: "broken.jpg",
        3: "red.jpg",
        4: "page.jpg",
        5: "../outside.jpg",
        6: "no.jpg",
    }
    made.publish("events", images={made.products[index]: path for index, path in paths.items()})
    return made


def make_page(artifacts, folder, **settings):
    folder.mkdir(exist_ok=True)
    report.run(report.Config(**settings), artifacts.inputs(), OutputDir(folder, folder, "key"), RunContext(threads=1))
    return (folder / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def html(artifacts, media, tmp_path_factory):
    return make_page(artifacts, tmp_path_factory.mktemp("report"), media_root=media, picture_size=64)


def pixels(uri):
    head, _, body = uri.partition(",")
    assert head == "data:image/jpeg;base64"
    return Image.open(io.BytesIO(base64.b64decode(body, validate=True)))


def test_each_product_with_a_readable_picture_has_it_once_with_its_title(html, artifacts):
    found = {title: pixels(uri) for uri, title in page_data(html)["pictures"]}
    assert set(found) == {artifacts.titles[index] for index in (0, 1, 3)}
    for title, colour in zip((artifacts.titles[0], artifacts.titles[1]), (RED, BLUE), strict=True):
        assert found[title].size == (64, 64)
        assert all(abs(a - b) < 12 for a, b in zip(found[title].getpixel((32, 32)), colour, strict=True))


def test_pictures_stand_where_their_products_are_named(html, artifacts):
    page = page_data(html)
    place = {title: number for number, (_, title) in enumerate(page["pictures"])}
    for interest in page["interests"]:
        assert interest["pictures"] == [place.get(title, -1) for title in interest["products"]]
    for card in page["bags"]["product"]:
        assert card["picture"] == place.get(card["name"], -1)
    for kind in ("user", "advertiser"):
        for card in page["bags"][kind]:
            assert card["events"]["pictures"] == [place.get(title, -1) for _, title, _ in card["events"]["rows"]]
    assert any(place >= 0 for interest in page["interests"] for place in interest["pictures"])


def test_nothing_of_the_files_but_their_pixels_reaches_the_page(html):
    for uri, _ in page_data(html)["pictures"]:
        content = base64.b64decode(uri.partition(",")[2])
        assert SECRET not in content
        assert content.endswith(b"\xff\xd9")
    assert "img-src data:;" in html
    assert "<img src" not in html.partition("page-data")[0]


def test_a_page_without_pictures_is_the_same_as_ever(artifacts, media, tmp_path):
    plain = Artifacts(tmp_path / "store")
    assert make_page(plain, tmp_path / "a", media_root=media) == make_page(plain, tmp_path / "b")
    bare = make_page(artifacts, tmp_path / "c")
    for word in ("pictures", "gallery", "inWords"):
        assert word not in bare


def test_pictures_stop_where_the_page_would_grow_too_large(artifacts, media, html, tmp_path):
    uris = [uri for uri, _ in page_data(html)["pictures"]]
    settings = {"media_root": media, "picture_size": 64}
    all_of_them = make_page(artifacts, tmp_path / "a", picture_bytes=sum(map(len, uris)), **settings)
    assert len(page_data(all_of_them)["pictures"]) == len(uris)
    fewer = make_page(artifacts, tmp_path / "b", picture_bytes=sum(map(len, uris)) - 1, **settings)
    assert 0 < len(page_data(fewer)["pictures"]) < len(uris)
    assert "pictures" not in page_data(make_page(artifacts, tmp_path / "c", picture_bytes=0, **settings))


def test_products_that_share_a_file_share_one_decoding(media, monkeypatch):
    asked = []
    decoded = report_pictures._decoded

    def watched(root, names, size, threads):
        asked.extend(names)
        return decoded(root, names, size, threads)

    monkeypatch.setattr(report_pictures, "_decoded", watched)
    rows = {name: {"image": ["red.jpg", "blue.jpg"]} for name in ("a", "b")} | {"c": {"image": None}}
    found = report_pictures.load(media, rows, ["b", "a", "b", "c", "unknown"], 32, 10**6, 1)
    assert asked == ["red.jpg"]
    assert list(found) == ["b", "a"]
    assert found["a"] == found["b"]
