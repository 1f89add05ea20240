"""A simulated log is called so wherever it shows, and no other log is."""

import dataclasses
import json
import re

import pytest
from typer.testing import CliRunner

from data import snapshot
from data.artifacts import OutputDir, Store
from data.context import RunContext
from data.errors import BadDataError
from data.schema import to_micros
from flows import inspection, media, report, summary
from flows.__main__ import app
from flows.config import load_config
from flows.presets import named
from tests.fixtures import fashion as tiny
from tests.flows.report_artifacts import Artifacts

SMALL = {"events": {"fashion": {"users": 60, "events": 8_000}}}


def page(artifacts, folder):
    report.run(report.Config(), artifacts.inputs(), OutputDir(folder, folder, "key"), RunContext(threads=1))
    return (folder / "report.html").read_text(encoding="utf-8").partition('<script id="page-data"')[0]


def test_every_heading_and_table_of_a_report_on_simulated_events_says_so(tmp_path):
    artifacts = Artifacts(tmp_path / "store")
    artifacts.publish("events", simulated=True)
    html = page(artifacts, tmp_path)
    own = ("Time and memory", "Time and memory by stage")  # what the run cost is no figure of the events
    for tag in ("title", "h1", "h2", "h3", "caption", "figcaption"):
        found = re.findall(rf"<{tag}[ >][^<]*", html)
        assert found
        for text in found:
            assert "(simulated events)" in text or text.endswith(own), text
    assert "nobody did what this log says" in html
    tiles = re.findall(r"<strong>[^<]*</strong><span>([^<]*)", html)
    assert len(tiles) > 4
    assert all("simulated" in label for label in tiles if label != "for the whole pipeline")


def test_no_page_of_other_events_speaks_of_simulation(tmp_path):
    assert "simulated" not in page(Artifacts(tmp_path / "store"), tmp_path)


@pytest.fixture(scope="module")
def fashion_run(tmp_path_factory):
    """`strata run --preset fashion` on a tiny catalogue, as far as the graph."""
    base = tmp_path_factory.mktemp("fashion")
    tiny.write(base)
    (base / "own.toml").write_text("[events.fashion]\nusers = 60\nevents = 8000\n")
    options = ["--config", str(base / "own.toml"), "--store", str(base / "store"), "--until", "graph"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STRATA_DATA", str(base))
        yield base, lambda *more: CliRunner().invoke(app, ["run", "--preset", "fashion", "--direct", *options, *more])


def test_the_preset_runs_and_what_it_prints_says_simulated(fashion_run):
    base, run = fashion_run
    answer = run("--json")
    assert answer.exit_code == 0, answer.output
    found = json.loads(answer.stdout)
    assert found["simulated"] is True
    graph = Store(base / "store").get("graph", found["stages"][1]["key"])
    assert graph.metrics["nodes"]["product"] == len(tiny.rows())
    printed = run().stdout
    assert "Artifacts (simulated events)" in printed
    assert "The log (simulated events) holds" in printed


def test_pictures_are_unpacked_below_the_store_once_and_both_stages_are_told_where(fashion_run):
    base, run = fashion_run
    assert run().exit_code == 0
    (folder,) = (base / "store/work/media").iterdir()
    assert len(list(folder.iterdir())) == len(tiny.rows()) - 1
    config = media.with_media(load_config(named("fashion"), None, SMALL), Store(base / "store"))
    assert config.features.media_root == config.report.media_root == folder
    assert "media_root" not in config.features.result_fields() | config.report.result_fields()
    assert inspection.status(Store(base / "store"))["unfinished"] == []


def test_a_folder_that_the_configuration_names_is_used_as_it_is(fashion_run, tmp_path):
    own = {**SMALL, "features": {"media_root": str(tmp_path)}}
    config = media.with_media(load_config(named("fashion"), None, own), Store(tmp_path / "store"))
    assert config.features.media_root == config.report.media_root == tmp_path
    assert not (tmp_path / "store").exists()


def test_a_source_without_pictures_changes_nothing(tmp_path):
    config = load_config(named("demo"), None, {})
    assert media.with_media(config, Store(tmp_path / "store")) == config
    assert not (tmp_path / "store").exists()


def test_a_missing_catalogue_is_told_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("STRATA_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(BadDataError, match=r"images_96x128\.zip"):
        media.with_media(load_config(named("fashion"), None, {}), Store(tmp_path / "store"))


def test_the_cuts_of_the_preset_lie_within_its_log():
    config = load_config(named("fashion"), None, {})
    settings = config.events.fashion
    first = to_micros(config.cuts.t0) - 56 * 86_400_000_000
    assert first == 1_704_067_200_000_000  # 2024-01-01
    last = first + settings.days * 86_400_000_000
    assert (last - to_micros(config.cuts.t2)) // 86_400_000_000 == 21


def test_the_manifest_of_every_stage_says_simulated(tmp_path, make_ref, capsys):
    store = Store(tmp_path / "store")
    timing = {"duration_s": 1.0, "peak_rss_mb": 1.0}
    for stage, metrics in (("events", {"simulated": True}), ("graph", {})):
        causes = {"inputs": {}, "config": {}, "seed": 0, "metrics": metrics, **timing}
        with store.publish(stage, "k", causes) as (out, _):
            out.write_json("x.json", {})
    published = snapshot.publish(store, {name: store.get(name, "k") for name in ("events", "graph")}, "v", "m", 0)
    found = inspection.manifest(store, published, "graph")
    assert found["simulated"] is True
    inspection.render_manifest(found)
    assert "simulated: nobody did" in capsys.readouterr().out
    real = dataclasses.replace(published, stages={"graph": "k"})
    assert "simulated" not in inspection.manifest(store, real, "graph")


def test_every_table_of_a_whole_run_is_marked(capsys):
    stages = [{"stage": "events", "key": "0123456789", "rows": {}, "duration_s": 1.0, "peak_rss_mb": 1.0}]
    asked = {"protocol": "all", "split": "test", "method": "learner", "recall@20": 0.1}
    level = {"level": 1, "k": 8, "active_share": 1, "perplexity": 1, "nmi_category": 0, "category_depth": 1}
    found = {
        "stages": stages,
        "retrieval": [asked],
        "levels": [{**level, "duplicates": 0}],
        "ranker": {"comparison": {"summary": []}, "seconds": {}},
        "snapshot": "s",
        "as_of": "2024-01-01",
        "report": "r",
    }
    summary.render(found)
    assert "simulated" not in capsys.readouterr().out
    summary.render({**found, "simulated": True})
    assert capsys.readouterr().out.count("(simulated events)") == 6
