"""The real research sets, where they are on the machine: counts as their READMEs say, and the published split, kept.

The checksums were recorded from the files whose counts the READMEs give; `Split.checksums` says what they are of.
"""

import gzip
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from data.schema import EVENT_TYPES
from data.sources import texts
from data.sources.splits import SETS, load_split
from tests.fixtures.public_sets import real

COUNTS = {
    "gowalla": (29_858, 40_981, 719_081, 91_047, 217_242),
    "amazon-beauty": (22_363, 12_101, 198_502 - 2 * 22_363, 22_363, 22_363),
    "amazon-sports": (35_598, 18_357, 296_337 - 2 * 35_598, 35_598, 35_598),
    "amazon-toys": (19_412, 11_924, 167_597 - 2 * 19_412, 19_412, 19_412),
    "amazon-instruments": (24_772, 9_922, 206_153 - 2 * 24_772, 24_772, 24_772),
    "amazon-scientific": (8_317, 4_344, 58_492 - 2 * 8_317, 8_317, 8_317),
    "retailrocket": (2_174, 30_113, 97_381, 0, 2_174),
    "movielens-100k": (943, 1_682, 100_000, 0, 0),
}
"""Users, items, and interactions in train, valid and test."""

CHECKSUMS = {
    "gowalla": (
        "06c3b933c938c7b4e8da0a7e21b0def45eb0a1c47dbbe6e716297a66440dcda5",
        "27b769f0ec3f02760a5ec03779670d5587ec0195d61dfe1580deb64eac19c725",
        "d1fd87811101d6c49dfe5728cc18ed8e15cbc17a2175ae0a6c811be341f3b1b2",
    ),
    "amazon-beauty": (
        "814a4bb004f02ed191a773a948f33237c8bad88518079c119f821e88b8fd6dd8",
        "ce0821b3aa70e8af9ab61bccfb5f7161ab8752dfae70ff87380ef4beea108402",
        "80492012b5e9ca61950dfd489d645106b76b2c1ec3b7d919ccde448994f0256a",
    ),
    "amazon-sports": (
        "372c6d4cb1e654690de96786767b4f414e0099058b0da0666544ef2fb596e942",
        "29b11900a58010f0a8ec05ce89876be8f4ef5a17eca2070d9e7e02990894387e",
        "e1bab9370da84f3c6938ffcbced95dc4644b863d682da6e85c1a1cd61b04c164",
    ),
    "amazon-toys": (
        "056999cc7cd41b542d48263a72d5fb223084b44eff5d3ddac13ad4bf8aa4f73a",
        "5d2db384286ce0df740245b8463141344cddbda5295ca52010a3fa6feba797fb",
        "2b990463990ea71863ba6b73f98c34d546e2e5995bdb293427422955755b128a",
    ),
    "amazon-instruments": (
        "aaa2426d6850dd310e4899b589a086e715a12a79bff2af068b8e131ddd3920ed",
        "9058b9225db990a03e31fc272564a4b93293982f04613617adc4a1e75c943559",
        "c088e6cc6bd231308e61f9ad8c177669caf5ddadb24ea9cae7833fc6b34cfc71",
    ),
    "amazon-scientific": (
        "a26c868330c271bb5cb5186a97f4661849d847c6ce2729df28a425df0efe1253",
        "64c1daafd1798aa6708edd7ad5928e1b8c9b1eed42285a92607cfd4bcc2e2a18",
        "2e75ddbe3c83e4f7f58c2039b35201f7a84aab13f63566cb4f8daf1e264845a3",
    ),
    "retailrocket": (
        "3890a111efa09468456716b5ced94379e11953717d2412ecf128ec354f503e22",
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "9863fa273cc828fdb57070cdb82742e66c080fcb8fa3fa722bdc813d5ff5cc42",
    ),
    "movielens-100k": (
        "fd741d789a8e9849c5bb87a00cfa2822bcd3d72ecaff1a6bc5c44411a1c86ade",
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    ),
}
"""sha256 of train, valid and test."""


@pytest.fixture(scope="module", params=SETS)
def split(request):
    return load_split(request.param, real(request.param))


def parts(split):
    return [split.train, split.valid, split.test]


def test_users_items_and_interactions_of_each_part_are_as_published(split):
    found = (split.num_users, split.num_items, *(len(part.items) for part in parts(split)))
    assert found == COUNTS[split.name]


def test_every_part_is_bit_for_bit_the_recorded_one(split):
    assert tuple(split.checksums().values()) == CHECKSUMS[split.name]


def test_parts_are_disjoint_and_well_formed(split):
    pairs = []
    for part in parts(split):
        assert part.offsets[0] == 0
        assert part.offsets[-1] == len(part.items)
        assert len(part.offsets) == split.num_users + 1
        user = np.repeat(np.arange(split.num_users), np.diff(part.offsets))
        pairs.append(np.unique(user * split.num_items + part.items))
    assert len(np.unique(np.concatenate(pairs))) == sum(map(len, pairs))


def test_gowallas_test_file_is_the_published_one():
    content = texts.read(real("gowalla"), "test.txt").encode()
    assert hashlib.md5(content).hexdigest() == "c04e2c4bcd2389f53ed8281816166149"


def test_gowallas_parts_hold_each_line_of_their_files():
    folder = real("gowalla")
    split = load_split("gowalla", folder)
    for part in ("train", "valid", "test"):
        mine = getattr(split, part)
        for line in gzip.decompress((folder / f"{part}.txt.gz").read_bytes()).decode().splitlines():
            user, *items = map(int, line.split())  # ids run from 0, so a published id is its own number
            assert mine.of(user).tolist() == sorted(items)


def test_the_most_popular_places_score_on_gowalla_as_its_readme_says():
    """Recall@20 and NDCG@20 of popularity in train and valid, places seen there left out: one figure of the whole."""
    split = load_split("gowalla", real("gowalla"))
    order = np.argsort(-np.bincount(np.concatenate([split.train.items, split.valid.items])), kind="stable")
    discount = 1 / np.log2(np.arange(2, 22))
    recalls, gains = [], []
    for user in range(split.num_users):
        held_out, seen = split.test.of(user), np.concatenate([split.train.of(user), split.valid.of(user)])
        best = order[: 20 + len(seen)]
        hit = np.isin(best[~np.isin(best, seen)][:20], held_out)
        recalls.append(hit.sum() / len(held_out))
        gains.append(hit @ discount / discount[: len(held_out)].sum())
    assert (round(np.mean(recalls), 4), round(np.mean(gains), 4)) == (0.0416, 0.0317)


def sequences(name, folder: Path):
    """User -> items as a plain reading of the files gives them, ids as numbers from 0."""
    stem = {"amazon-beauty": "Beauty", "amazon-sports": "Sports_and_Outdoors", "amazon-toys": "Toys_and_Games"}
    if name in stem:
        lines = gzip.decompress((folder / f"{stem[name]}.txt.gz").read_bytes()).decode().splitlines()
        rows = [list(map(int, line.split())) for line in lines]
        return {user - 1: [item - 1 for item in items] for user, *items in rows}
    file = {"amazon-instruments": "Instruments", "amazon-scientific": "Scientific"}[name]
    given = json.loads(gzip.decompress((folder / f"{file}.inter.json.gz").read_bytes()))
    return {int(user): items for user, items in given.items()}


@pytest.mark.parametrize("name", [name for name in SETS if name.startswith("amazon")])
def test_parts_of_an_amazon_set_put_together_are_its_sequences(name):
    folder = real(name)
    split = load_split(name, folder)
    given = sequences(name, folder)
    assert len(given) == split.num_users
    for user, items in given.items():
        assert [*split.train.of(user), *split.valid.of(user), *split.test.of(user)] == items
        assert len(split.test.of(user)) == len(split.valid.of(user)) == 1


def test_amazon_scientific_is_described_as_its_readme_says():
    items = load_split("amazon-scientific", real("amazon-scientific")).items.to_pylist()
    assert sum(item["advertiser_id"] is not None for item in items) == 4_332
    assert sum(item["category"] is not None for item in items) == 4_213
    assert sum(item["description"] is not None for item in items) == 4_221
    assert all(item["title"] for item in items)
    # The README counts the missing one as a value too: 1,547 brands and 765 paths.
    assert len({item["advertiser_id"] for item in items}) == 1_547
    assert len({tuple(item["category"] or ()) for item in items}) == 765


@pytest.mark.parametrize("name", ["amazon-beauty", "amazon-sports", "amazon-toys"])
def test_every_s3rec_item_has_its_category_ids(name):
    assert all(load_split(name, real(name)).items["attributes"].to_pylist())


def test_retailrockets_events_are_counted_by_behaviour_as_in_its_readme():
    split = load_split("retailrocket", real("retailrocket"))
    codes, counts = np.unique(split.train.event_types, return_counts=True)
    found = {EVENT_TYPES[code]: count for code, count in zip(codes, counts.tolist(), strict=True)}
    assert found == {"view": 75_374, "cart": 12_456, "purchase": 9_551}
    assert (np.diff(split.test.offsets) == 1).all()
    assert (split.train.ts.min(), split.train.ts.max()) == (1430623510 * 10**6, 1442544701 * 10**6)


def test_movielens_has_its_stars_titles_and_genres():
    split = load_split("movielens-100k", real("movielens-100k"))
    stars, counts = np.unique(split.train.values, return_counts=True)
    assert dict(zip(stars.tolist(), counts.tolist(), strict=True)) == {1: 6110, 2: 11370, 3: 27145, 4: 34174, 5: 21201}
    assert all(split.items["title"].to_pylist())
    assert sum(genres is not None for genres in split.items["category"].to_pylist()) >= 1_680
