"""The retrieval benchmark end to end on tiny sets, and the promises of its protocols."""

import csv
import json
import sys

import numpy as np
import pytest

from data.errors import UsageError
from data.sources.splits import load_split
from hierarchy.baselines.popularity import Popularity
from hierarchy.recall import Found
from tests.benchmarks import retrieval, rows
from tests.benchmarks.retrieval_quality import figures
from tests.benchmarks.retrieval_quality.content import content_of
from tests.benchmarks.retrieval_quality.methods import METHODS, Method
from tests.benchmarks.retrieval_quality.protocols import ALL, BOUGHT, SEEN, protocol
from tests.benchmarks.retrieval_quality.search import Search, drawn
from tests.fixtures import public_sets

SLOW = {"learner"}  # trains a network; test_retrieval_learner has it


def read(path):
    with open(path, newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """Runs the benchmark in this process on tiny sets; returns its rows and its trials."""
    monkeypatch.setattr(rows, "versions_of", lambda: "")
    monkeypatch.setattr("tests.benchmarks.rows._commit", lambda: "")
    monkeypatch.setattr(rows, "commit", lambda: "")
    file = tmp_path / "out" / "retrieval.csv"
    file.parent.mkdir()

    def run(*options):
        command = ["retrieval", "--data", str(tmp_path), "--csv", str(file), *options]
        monkeypatch.setattr(sys, "argv", command)
        retrieval.main()
        return tuple(read(path) for path in (file, file.with_name("retrieval_trials.csv")) if path.exists())

    for name in ("gowalla", "amazon-beauty", "amazon-scientific", "retailrocket"):
        public_sets.write(name, tmp_path)
    return run


def of(name, tmp_path):
    public_sets.write(name.removesuffix("-cut"), tmp_path)
    return protocol(name, tmp_path)


def test_every_method_runs_on_every_kind_of_set_and_logs_all_its_trials(bench):
    sums = "directional_knn+item_knn+spectral-256"
    found, trials = bench(
        "--sets",
        "amazon-scientific,gowalla",
        "--trials",
        "3",
        "--methods",
        ",".join(m.name for m in METHODS if m.name not in SLOW) + f",{sums}",
    )
    by_method = {}
    for row in trials:
        by_method.setdefault((row["set"], row["method"], row["question"]), []).append(json.loads(row["setting"]))
    assert len(by_method["amazon-scientific", "directional_knn", ALL]) == 3
    assert len(by_method["amazon-scientific", "popularity", SEEN]) == 1, "it has one setting only"
    assert ("gowalla", "content", SEEN) not in by_method, "no content there"
    for settings in by_method.values():
        assert len({json.dumps(setting) for setting in settings}) == len(settings)
    best = by_method["amazon-scientific", "directional_knn", SEEN]
    assert by_method["amazon-scientific", sums, SEEN][0]["parts"][0] in best
    exams = {row["what"] for row in found}
    assert {f"amazon-scientific, {exam}, {mask}" for exam in ("strict", "refit") for mask in (SEEN, ALL)} <= exams
    assert {"gowalla, test, seen masked", "gowalla, published"} <= exams
    values = [float(row["p50"]) for row in found if row["metric"] in ("recall@10", "ndcg@20")]
    assert len(values) > 40
    assert all(0 <= value <= 1 for value in values)
    gaps = [row for row in found if row["peer"] == "spectral-256 - popularity"]
    assert {row["metric"] for row in gaps} >= {"recall@10 difference", "recall@20 difference, 2.5 %"}


def test_a_resumed_search_takes_what_was_logged_and_another_run_is_the_same(bench):
    found, trials = bench("--sets", "amazon-beauty", "--methods", "directional_knn", "--trials", "4")
    again, logged = bench("--sets", "amazon-beauty", "--methods", "directional_knn", "--trials", "4", "--resume")
    assert logged == trials
    measured = [row for row in found if "published" not in row["what"]]
    assert again[len(found) :] == measured, "published rows are written once"


def test_processes_may_share_a_search(bench, tmp_path):
    asked = ("--sets", "amazon-beauty", "--methods", "directional_knn", "--trials", "5")
    whole, trials = bench(*asked)
    for file in (tmp_path / "out").iterdir():
        file.unlink()
    (logged,) = [bench(*asked, "--shard", shard)[-1] for shard in ("0/2", "1/2")][1:]
    assert len(logged) == len(trials)
    again, still = bench(*asked, "--resume")
    assert still == logged, "nothing is left to be tried"
    assert again == whole
    assert {row["trial"] for row in logged} == {row["trial"] for row in trials}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--shard", "2/2"), "0 <= i < n"),
        (("--shard", "0/2", "--methods", "popularity+item_knn"), "expected single methods with --shard"),
        (("--sets", "gowala"), "did you mean 'gowalla'"),
        (("--methods", "popularity+spektral"), "did you mean 'spectral'"),
        (("--trials", "0"), "at least one trial"),
        (("--sets", "completejourney"), "expected --graph"),
    ],
)
def test_a_wrong_option_says_what_is_known(bench, capsys, options, says):
    with pytest.raises(SystemExit) as end:
        bench(*options)
    assert end.value.code == 2
    assert says in capsys.readouterr().err


def test_leave_one_out_is_tuned_without_the_test_and_strict_fits_without_validation(tmp_path):
    asked = of("amazon-beauty", tmp_path)
    sequences = {0: [3, 1, 2, 0], 1: [2, 0, 3], 2: [1, 3, 0, 2, 4]}
    strict, refit = asked.tests
    for exam, cut in ((asked.valid, 2), (strict, 2), (refit, 1)):
        history = exam.known.history
        for user, items in sequences.items():
            own = history.user == user
            newest_last = history.product[own][np.argsort(-history.age[own])]
            assert newest_last.tolist() == items[:-cut]
            assert history.recency()[own].max() == len(items) - cut - 1
    assert strict.grown is not None
    assert strict.grown.product.tolist() == refit.known.history.product.tolist()
    for exam, place in ((asked.valid, -2), (strict, -1), (refit, -1)):
        targets = exam.questions[0].targets
        assert [targets[[user]].indices.tolist() for user in sequences] == [
            [items[place]] for items in sequences.values()
        ]
    masked, free = (question.barred for question in strict.questions)
    assert free is None
    assert sorted(masked[[2]].indices.tolist()) == [0, 1, 2, 3]


def test_gowalla_is_tuned_on_its_validation_part_and_fitted_again_with_it(tmp_path):
    asked, split = of("gowalla", tmp_path), load_split("gowalla", tmp_path / "gowalla")
    (test,) = asked.tests
    assert len(asked.valid.known.history.user) == len(split.train.items)
    assert len(test.known.history.user) == len(split.train.items) + len(split.valid.items)
    assert not test.known.history.age.any()
    assert asked.over == "targets"


def retailrocket(tmp_path, change=None):
    """A shop of its own: users 0 and 1 with two purchases, user 2 with one."""
    folder = tmp_path / "retailrocket-mb"
    folder.mkdir(parents=True, exist_ok=True)
    events = [
        (1430623510, 0, 6, "view"), (1430623535, 0, 6, "purchase"), (1430700000, 0, 7, "view"),
        (1430700060, 0, 7, "purchase"), (1431000000, 1, 6, "view"), (1431100000, 1, 6, "purchase"),
        (1432000000, 1, 9, "purchase"), (1433000000, 2, 7, "purchase"), (1434000000, 2, 9, "view"),
        (1435000000, 1, 5, "purchase"),
    ]  # fmt: skip
    lines = [",".join(map(str, event)) for event in (change or sorted)(events)]
    (folder / "events.csv").write_text("timestamp,user_id,item_id,event\n" + "\n".join(lines) + "\n")
    (folder / "test.csv").write_text("user_id,item_id\n0,4\n1,7\n2,5\n")
    return tmp_path


def test_retailrocket_holds_out_the_last_purchase_with_every_event_of_its_pair(tmp_path):
    asked = protocol("retailrocket", retailrocket(tmp_path))
    split = load_split("retailrocket", tmp_path / "retailrocket-mb")
    item = {int(name): place for place, name in enumerate(split.item_ids)}
    valid, test = asked.valid, asked.tests[0]
    assert valid.users.tolist() == [0, 1]
    targets = [valid.questions[0].targets[[user]].indices.tolist() for user in range(3)]
    assert targets == [[item[7]], [item[5]], []]
    pairs = set(zip(valid.known.history.user.tolist(), valid.known.history.product.tolist(), strict=True))
    assert (0, item[7]) not in pairs
    assert (2, item[7]) in pairs
    bought = valid.questions[0].barred.toarray()
    assert not bought[0, item[7]]
    assert bought[0, item[6]]
    assert valid.questions[0].name == BOUGHT
    assert len(test.known.history.user) == 10


def test_retailrocket_as_published_cannot_be_read_in_time(tmp_path):
    """Clocks turned upside down within every user change nothing that a method sees."""

    def reversed_time(events):
        return sorted((2_870_000_000 - ts, *rest) for ts, *rest in events)

    plain = protocol("retailrocket", retailrocket(tmp_path / "a")).tests[0].known
    turned = protocol("retailrocket", retailrocket(tmp_path / "b", reversed_time)).tests[0].known
    for column in ("user", "product", "age"):
        np.testing.assert_array_equal(getattr(plain.history, column), getattr(turned.history, column))


def test_retailrocket_cut_in_time_knows_nothing_after_the_cut(tmp_path):
    asked = protocol("retailrocket-cut", retailrocket(tmp_path))

    def without_the_end(events):
        return [*sorted(events)[:-1], (1435000000, 0, 9, "view")]

    (exam,) = asked.tests
    (other,) = protocol("retailrocket-cut", retailrocket(tmp_path / "b", without_the_end)).tests
    assert (exam.known.history.age > 0).all()
    for column in ("user", "product", "age"):
        np.testing.assert_array_equal(getattr(exam.known.history, column), getattr(other.known.history, column))
    assert exam.questions[0].targets.nnz == 1
    assert other.questions[0].targets.nnz == 0


def test_validation_users_are_drawn_once_and_at_most_as_many_as_asked(tmp_path):
    public_sets.write("amazon-beauty", tmp_path)
    few = [protocol("amazon-beauty", tmp_path, valid_users=2).valid.users.tolist() for _ in range(2)]
    assert few[0] == few[1]
    assert len(few[0]) == 2


def test_a_method_of_ones_own_needs_a_name_a_space_and_a_fit(tmp_path):
    seen = []

    def fit(known, setting, seed, device):
        seen.append((setting["window"], seed, device))
        return Popularity(known.history)

    own = Method("own", lambda known: {"window": (1, 2, 3)}, fit)
    search = Search(2, 5, "cpu", tmp_path / "log.csv", methods=(own,))
    search.__class__ = type("Quiet", (Search,), {"_write": lambda self, trials: None})
    chosen = search.choose("own", of("amazon-beauty", tmp_path))
    assert seen[0] == (1, 5, "cpu")
    assert len(seen) == 2
    assert set(chosen) == {SEEN, ALL}
    with pytest.raises(UsageError, match="no method"):
        search.check("other")


def test_drawn_settings_start_with_the_default_and_never_repeat():
    space = {"a": (1, 2, 3), "b": ("x", "y")}
    assert drawn(space, 4, 0)[0] == {"a": 1, "b": "x"}
    everything = drawn(space, 50, 0)
    assert len(everything) == len({json.dumps(setting) for setting in everything}) == 6
    assert drawn(space, 4, 1) == drawn(space, 4, 1) != drawn(space, 4, 2)


def test_the_bootstrap_is_paired_and_its_quantiles_hold_the_mean():
    rng = np.random.default_rng(0)
    gap = rng.normal(0.02, 0.1, 4000)
    gap[::7] = np.nan
    means = figures.resampled(gap, 0)
    assert means.std() == pytest.approx(0.1 / np.sqrt(np.isfinite(gap).sum()), rel=0.1)
    assert np.percentile(means, 2.5) < np.nanmean(gap) < np.percentile(means, 97.5)


def test_buckets_are_by_degree_of_the_target_and_by_length_of_history(monkeypatch, tmp_path):
    monkeypatch.setattr(figures, "CLAIM", 1)
    asked = of("amazon-beauty", tmp_path)
    exam = asked.tests[0]
    found = Found(3, 20, np.array([0, 1, 2]), np.array([0, 3, 4]), np.array([2, 20, 0]))
    got = {row["metric"]: row["p50"] for row in figures.buckets(asked, exam, "x", "m", found)}
    degree = np.bincount(exam.known.history.product, minlength=5)
    assert degree[[0, 3, 4]].tolist() == [1, 2, 0]
    assert got["recall@10, target degree 0"] == 1.0
    assert got["recall@10, target degree 1-5"] == 0.5
    assert got["recall@10, history length 1-5"] == pytest.approx(2 / 3, abs=1e-4)


def test_content_is_near_where_words_are_shared_and_absent_without_words(tmp_path):
    items = load_split("amazon-scientific", public_sets.write("amazon-scientific", tmp_path)).items
    vectors = content_of(items)
    close = vectors @ vectors.T
    assert close[0, 3] > close[0, 1], "bolt and nut share brand and two categories"
    np.testing.assert_allclose(close.diagonal(), 1, rtol=1e-4)
    assert content_of(items.slice(0, 0)) is None


def test_only_what_learns_is_fitted_again_for_other_seeds(bench, monkeypatch):
    repeats = {}

    def noted(asked, exam, name, chosen, search, count, found):
        repeats[name] = count
        return []

    monkeypatch.setattr(retrieval, "_test", noted)
    monkeypatch.setattr(Search, "choose", lambda *_: {})
    sums = "popularity+lightgcn"
    bench("--sets", "amazon-beauty", "--repeats", "3", "--methods", f"popularity,sasrec,{sums},popularity+item_knn")
    assert repeats == {"popularity": 1, "sasrec": 3, sums: 3, "popularity+item_knn": 1}
