"""The ablation on a planted shop: each variant is a learner of its own, fits are kept, rows say what was lost."""

import csv
import sys

import numpy as np
import pytest
from scipy import sparse

from data.errors import StrataError
from data.sources.splits import load_split
from hierarchy.bias import BIASES
from hierarchy.kmeans import unit
from hierarchy.level_quality import category_tree
from hierarchy.purchases import History
from hierarchy.recall import Question
from tests.benchmarks import ablation, rows
from tests.benchmarks.ablations import fits as fits_of
from tests.benchmarks.ablations import ground as grounds
from tests.benchmarks.ablations import table
from tests.benchmarks.ablations.ground import Ground
from tests.benchmarks.ablations.variants import FULL, chosen, merged, recipe, variants
from tests.benchmarks.retrieval_quality import learner
from tests.benchmarks.retrieval_quality.protocols import COLD, COLD_OF_ALL, Known
from tests.fixtures import public_sets

SMALL = {
    "dim": 16, "heads": 2, "layers": 1, "epochs": 2.0, "batch_size": 64, "precision": "fp32", "dropout": 0.1,
    "levels": ({"k": 2, "top": 1}, {"k": 4, "top": 2}, {"k": 8, "top": 2}),
    # Four products of a kind that look alike without content leave no place for eight primitives to settle.
    "structure": {"spectral": 4, "directional": 4}, "distillation": {"seeds": 16, "queue": 64, "every": 1, "settle": 0},
    "lr": 1e-3,
}  # fmt: skip


def shop():
    """Forty products of four kinds; users keep to one kind, and the last four products of each are cold."""
    rng = np.random.default_rng(0)
    kind, kinds = np.arange(40) % 4, np.eye(4, 8, dtype=np.float32)
    cold = np.arange(40) >= 36
    content = unit(kinds[kind] + 0.2 * rng.standard_normal((40, 8)).astype(np.float32))
    own = [rng.permutation(np.flatnonzero((kind == user % 4) & ~cold)) for user in range(80)]
    user = np.repeat(np.arange(80), 5)
    history = History(user, np.concatenate([items[:5] for items in own]), np.tile(np.arange(5.0)[::-1], 80), 80, 40)

    def pairs(products):
        found = sparse.csr_array((np.ones(80, bool), (np.arange(80), products)), shape=(80, 40))
        return found, np.arange(80)

    after, asked = pairs([items[5] for items in own])
    new, _ = pairs([36 + user % 4 for user in range(80)])
    questions = (
        grounds.Asked(Question("warm", after, ~cold, history.matrix()), asked, 10),
        grounds.Asked(Question(COLD, new, cold), asked, 2),
        grounds.Asked(Question(COLD_OF_ALL, new, np.ones(40, bool)), asked, 20),
    )
    tree = category_tree([f"kind {kind}" for kind in np.arange(40) % 4])
    return Ground(
        "planted",
        Known(history, content, "order"),
        questions,
        tree,
        [f"shop {kind}" for kind in np.arange(40) % 4],
        SMALL,
    )


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """Runs the benchmark on the planted shop; returns its rows."""
    monkeypatch.setattr(rows, "versions_of", lambda: "")
    monkeypatch.setattr(grounds, "opened", lambda *of: shop())
    file = tmp_path / "out" / "ablation.csv"

    def run(*options):
        own = ["--data", str(tmp_path), "--csv", str(file), "--fits", str(tmp_path / "fits"), "--commit", "abc"]
        monkeypatch.setattr(sys, "argv", ["ablation", *own, *options])
        ablation.main()
        with open(file, newline="", encoding="utf-8") as stream:
            return list(csv.DictReader(stream))

    return run


@pytest.mark.parametrize("time_kind", ["order", "none"])
def test_every_variant_is_a_learner_that_differs_from_the_recipe(time_kind):
    base = recipe(time_kind, 10_000, {})
    config = learner.config_of(time_kind, base)
    known = variants(time_kind, base)
    assert known[0].name == FULL
    assert 0 < config.warmup_steps < config.epochs * 10_000 / config.batch_size
    made = [learner.config_of(time_kind, merged(base, variant.setting)) for variant in known[1:]]
    changed = [one != config or variant.popularity != 1 or not variant.content
               for variant, one in zip(known[1:], made, strict=True)]  # fmt: skip
    assert all(changed)
    names = {variant.name for variant in known}
    assert len(names) == len(known)
    wanted = {"link", "distillation", "consistency", "spread", "student view early", "structure spectral", "popularity"}
    wanted |= {f"bias {bias}" for bias in BIASES if bias not in config.bias_off}
    assert {f"{name} off" for name in wanted} <= names
    if time_kind == "order":
        assert {"teacher directional on", "sampled softmax and hard negatives", "repeats off", "two levels"} <= names
    off = next(one for variant, one in zip(known[1:], made, strict=True) if variant.name == "spread off")
    assert off.weights.spread == 0
    assert off.weights.link == config.weights.link


def test_rows_say_what_a_variant_loses_and_finished_fits_are_not_made_again(bench, monkeypatch):
    found = bench("--seeds", "2", "--only", "one level,content off")
    by = {(row["what"], row["metric"]): float(row["p50"]) for row in found}
    whole = by[FULL, "recall@2, cold among cold"]
    assert whole > 0.9, "content tells the kinds apart"
    assert by["content off", "recall@2, cold among cold"] < 0.7
    lost = by["content off", "recall@2, cold among cold: difference"]
    assert lost == pytest.approx(by["content off", "recall@2, cold among cold"] - whole, abs=0.05)
    low, high = (by["content off", f"recall@2, cold among cold: difference, {edge} %"] for edge in (2.5, 97.5))
    assert low < lost < high < 0
    assert by[FULL, "NMI with categories, K 4"] > 0.8
    assert {metric for what, metric in by if what == "one level" and metric.startswith("active")} == {"active, K 8"}
    assert {row["git_sha"] for row in found} == {"abc"}

    monkeypatch.setattr(fits_of.learner, "fit", lambda *of: pytest.fail("made again"))
    again = bench("--seeds", "2", "--only", "one level", "--shard", "1/2")
    assert [row["what"] for row in again[len(found) :]] == ["one level"] * len(
        [r for r in found if r["what"] == "one level"]
    )
    text = table.markdown(ablation.Path(sys.argv[4]))
    assert text.splitlines()[2].startswith(f"| {FULL} | ")
    assert any(line.startswith("| content off | ") and "(-" in line for line in text.splitlines())


def test_a_variant_that_collapses_is_a_row_and_ids_can_be_left_out(bench, monkeypatch):
    real, logs = learner.fit, {}

    def fit(history, content, time_kind, setting, *rest):
        if setting.get("weights", {}).get("spread") == 0:
            raise StrataError("all the same")
        found = real(history, content, time_kind, setting, *rest)
        logs[rest[-1] is not None] = '"advertiser"' in found.learner.file("training.jsonl").read_text()
        return found

    monkeypatch.setattr(fits_of.learner, "fit", fit)
    found = bench("--seeds", "1", "--only", "spread off,id residuals off,advertiser link on")
    by = {(row["what"], row["metric"]): float(row["p50"]) for row in found}
    assert by["spread off", table.REFUSED] == 1
    assert not any(what == "spread off" and metric.startswith("recall") for what, metric in by)
    assert by["id residuals off", "recall@10, warm"] > 0
    assert logs == {False: False, True: True}, "the loss is there where advertisers are"
    assert "collapsed" in table.markdown(ablation.Path(sys.argv[4]))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--only", "spred off"), "did you mean 'spread off'"),
        (("--shard", "4/4"), "0 <= i < n"),
        (("--seeds", "0"), "at least one seed"),
        (("--change", "epochs"), "NAME=JSON"),
    ],
)
def test_a_wrong_option_says_what_is_known(bench, capsys, options, says):
    with pytest.raises(SystemExit) as end:
        bench(*options)
    assert end.value.code == 2
    assert says in capsys.readouterr().err


def test_chosen_variants_always_hold_the_whole_recipe():
    known = variants("order", {})
    assert [variant.name for variant in chosen(known, "spread off")] == [FULL, "spread off"]
    assert chosen(known, "") == known


def test_nothing_of_the_test_is_known_or_asked_on_scientific(tmp_path, monkeypatch):
    masks = {0: np.arange(5) == 4, 1: np.isin(np.arange(5), [1, 4])}
    monkeypatch.setattr("tests.benchmarks.retrieval_quality.withheld.withheld", lambda ids, seed: masks[seed])
    public_sets.write("amazon-scientific", tmp_path)
    found = grounds.opened("amazon-scientific", tmp_path, None)
    split = load_split("amazon-scientific", tmp_path / "amazon-scientific")
    known = set(zip(found.known.history.user.tolist(), found.known.history.product.tolist(), strict=True))
    train = {(user, int(item)) for user in range(split.num_users) for item in split.train.of(user)}
    assert known == {(user, item) for user, item in train if item not in (1, 4)}
    warm, cold, of_all = (asked.question for asked in found.asked)
    assert not warm.allowed[[1, 4]].any()
    assert cold.allowed.tolist() == [False, True, False, False, False]
    assert of_all.allowed.tolist() == [True, True, True, True, False]
    for asked in found.asked:
        row, product = asked.question.wanted(asked.users)
        assert len(row) > 0
        assert not {(int(asked.users[r]), int(p)) for r, p in zip(row, product, strict=True)} & {
            (user, int(item)) for user in range(split.num_users) for item in split.test.of(user)
        }
