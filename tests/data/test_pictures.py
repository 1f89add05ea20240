"""A zip of pictures becomes a folder of files, whatever somebody has put into the zip."""

import random
import struct
import zipfile

import pytest

from data.errors import BadDataError
from data.sources import pictures
from tests.fixtures.fashion import jpeg

GOOD = {"12.jpg": jpeg((1, 2, 3)), "7.jpg": jpeg((200, 2, 3))}


def packed(path, members, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


def test_pictures_come_out_as_they_went_in_once(tmp_path):
    archive = packed(tmp_path / "a.zip", GOOD.items(), zipfile.ZIP_DEFLATED)
    folder = pictures.unpack(archive, tmp_path / "deep/media")
    assert pictures.names(archive) == ["12.jpg", "7.jpg"]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == GOOD
    archive.unlink()
    assert pictures.unpack(archive, folder) == folder  # it is there: the archive is not looked at again
    assert [path.name for path in folder.parent.iterdir()] == ["media"]


@pytest.mark.parametrize(
    "name",
    [
        "../1.jpg",
        "/1.jpg",
        "a/1.jpg",
        "1.png",
        "1.jpg.exe",
        "x.jpg",
        "1.JPG",
        "..\\1.jpg",
        "C:1.jpg",
        "１.jpg",
        "1.jpg\n",
        "1" * 19 + ".jpg",
        "dir/",
        ".jpg",
        "~1.jpg",
    ],
)
def test_any_other_name_is_refused_and_nothing_is_written(tmp_path, name):
    archive = packed(tmp_path / "a.zip", [*GOOD.items(), (name, b"x")])
    with pytest.raises(BadDataError, match="expected pictures named"):
        pictures.unpack(archive, tmp_path / "out/media")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.zip", "out"]
    assert not list((tmp_path / "out").iterdir())


def test_a_name_twice_is_refused(tmp_path):
    with pytest.warns(UserWarning, match="Duplicate name"):
        archive = packed(tmp_path / "a.zip", [("1.jpg", b"a"), ("1.jpg", b"b")])
    with pytest.raises(BadDataError, match="a name twice"):
        pictures.unpack(archive, tmp_path / "media")


def test_a_link_in_the_zip_becomes_a_plain_file(tmp_path):
    link = zipfile.ZipInfo("1.jpg")
    link.external_attr = 0o120777 << 16
    folder = pictures.unpack(packed(tmp_path / "a.zip", [(link, b"/etc/passwd")]), tmp_path / "media")
    assert not (folder / "1.jpg").is_symlink()
    assert (folder / "1.jpg").read_bytes() == b"/etc/passwd"


@pytest.mark.parametrize(("file_bytes", "total"), [(1_000, 10**9), (10**9, 1_000)])
def test_a_bomb_is_refused_by_what_it_unpacks_to(tmp_path, monkeypatch, file_bytes, total):
    monkeypatch.setattr(pictures, "FILE_BYTES", file_bytes)
    monkeypatch.setattr(pictures, "TOTAL_BYTES", total)
    archive = packed(tmp_path / "a.zip", [("1.jpg", bytes(1_001))], zipfile.ZIP_DEFLATED)
    lied = archive.read_bytes().replace(struct.pack("<I", 1_001), struct.pack("<I", 999))  # the index says less
    archive.write_bytes(lied)
    with pytest.raises(BadDataError, match=r"cannot be read|expected at most"):
        pictures.unpack(archive, tmp_path / "media")
    honest = packed(tmp_path / "b.zip", [("1.jpg", bytes(600)), ("2.jpg", bytes(600))], zipfile.ZIP_DEFLATED)
    if total == 1_000:
        with pytest.raises(BadDataError, match="expected at most"):
            pictures.unpack(honest, tmp_path / "media")
    else:
        assert pictures.unpack(honest, tmp_path / "media").is_dir()


def test_too_many_pictures_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "FILES", 1)
    with pytest.raises(BadDataError, match="at most 1 pictures"):
        pictures.names(packed(tmp_path / "a.zip", GOOD.items()))


def test_any_broken_archive_is_bad_data_and_leaves_nothing(tmp_path):
    whole = packed(tmp_path / "a.zip", GOOD.items(), zipfile.ZIP_DEFLATED).read_bytes()
    draw = random.Random(3)
    broken = [b"", b"no zip", whole[:-1], whole[: len(whole) // 2], whole[10:]]
    broken += [bytes(byte ^ (draw.random() < 0.01) * 255 for byte in whole) for _ in range(40)]
    refused = 0
    for number, content in enumerate(broken):
        archive, folder = tmp_path / f"{number}.zip", tmp_path / "out" / str(number)
        archive.write_bytes(content)
        try:
            pictures.unpack(archive, folder)
        except BadDataError:
            refused += 1
            assert not folder.exists()
    assert refused > 30
    assert not [path for path in (tmp_path / "out").iterdir() if path.name.startswith(".")]
