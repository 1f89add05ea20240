"""A retrain that goes on from the learner before it: where it starts, what it refuses, and that it moves little."""

import json
import sys

import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors.torch import load_file

from data.artifacts import sha256_file
from data.context import RunContext
from data.errors import BadDataError
from data.progress import Progress
from graph.store import GraphStore, index_in
from hierarchy import train
from hierarchy.inference import EntityEncoder, FrozenLearner
from hierarchy.kmeans import unit
from hierarchy.losses.anchor import anchor_loss
from tests.fixtures.artifacts import make_ref
from tests.hierarchy import small_learner as small
from tests.hierarchy.retrained import rotation

STILL = {"warm": {"steps": 0}}
STRUCTURE = {"structure": {"spectral": 3, "directional": 3}, "dim": 24}


@pytest.fixture(scope="module")
def first(root, inputs):
    return small.trained(root, inputs, "first")


def after(ref, inputs, features=None):
    """`inputs` with `ref` as the learner before, which saw `features` (those of today if left out)."""
    return {**inputs, "previous": ref, "previous_features": features or inputs["features"]}


def vectors(ref, inputs, kind="product", count=40):
    encoder = EntityEncoder(FrozenLearner.open(ref), inputs["graph"], inputs["features"])
    return encoder.encode(kind, np.arange(count), small.before(small.T1))[:, 0]


def test_no_step_further_is_the_learner_before_bit_for_bit(root, inputs, first):
    again = small.trained(root, after(first, inputs), "still", **STILL)
    assert sha256_file(again.file("model.safetensors")) == sha256_file(first.file("model.safetensors"))
    assert again.metrics["warm_start"] == {
        "previous": first.key,
        "ids_kept": again.metrics["ids"],
        "content_cosine": 1.0,
    }
    assert "warm_start" not in first.metrics


def test_it_trains_few_steps_without_a_warm_up_and_from_the_weights_before(root, inputs, first):
    ref = small.trained(root, after(first, inputs), "short", warm={"steps": 6})
    rows = [json.loads(line) for line in ref.file("training.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(6))
    assert "distillation" in rows[0], "primitives are there from the first step on"
    before, now = (FrozenLearner.open(found) for found in (first, ref))
    assert 1e-4 < (before.model.encoder.source_ids - now.model.encoder.source_ids).norm() < 2
    for level in range(2):
        moved = (before.prototypes.vectors(level) * now.prototypes.vectors(level)).sum(dim=1)
        assert (moved > 0.9).all()
        assert moved.min() < 1 - 1e-6
    assert json.loads(ref.file("learner.json").read_text())["config"]["steps"] == small.CONFIG["steps"]


def test_primitives_move_less_with_momentum(root, inputs, first):
    start = FrozenLearner.open(first).prototypes.vectors(1)
    moved = []
    for momentum in (0.0, 0.999):
        warm = {"steps": 4, "momentum": momentum}
        loose = {**small.CONFIG["distillation"], "momentum": 0.5}
        ref = small.trained(root, after(first, inputs), f"momentum{momentum}", warm=warm, distillation=loose)
        moved.append(float((FrozenLearner.open(ref).prototypes.vectors(1) - start).norm()))
    assert moved[1] < 0.2 * moved[0]


def test_an_anchor_keeps_entities_near_what_was_said_of_them(root, inputs, first):
    start, moved = vectors(first, inputs), []
    for anchor in (0.0, 30.0):
        warm = {"steps": 20, "lr_factor": 3.0, "anchor": anchor}
        ref = small.trained(root, after(first, inputs), f"anchor{anchor}", warm=warm)
        moved.append(1 - (vectors(ref, inputs) * start).sum(axis=1).mean())
        rows = [json.loads(line) for line in ref.file("training.jsonl").read_text().splitlines()]
        assert ("anchor" in rows[0]) == bool(anchor)
    assert rows[0]["anchor"] == pytest.approx(0, abs=1e-5), "nothing has moved yet"
    assert rows[-1]["anchor"] > 1e-6
    assert moved[1] < 0.7 * moved[0]


def test_the_anchor_loss_is_the_divergence_of_memberships():
    generator = torch.Generator().manual_seed(0)
    now, before, level = (
        torch.nn.functional.normalize(torch.randn(n, 6, generator=generator), dim=1) for n in (5, 5, 4)
    )
    p, q = (torch.softmax(found @ level.t() / 0.1, dim=1) for found in (before, now))
    by_hand = (p * (p / q).log()).sum(dim=1).mean()
    assert anchor_loss(now, before, [level, level], 0.1).item() == pytest.approx(by_hand.item(), rel=1e-4)
    assert anchor_loss(now, now, [level], 0.1).item() == pytest.approx(0, abs=1e-6)


def test_residuals_go_by_external_id_and_new_ones_start_at_turned_views(root, inputs):
    """An earlier log knows fewer products; views fitted again have other axes."""
    past = small.shop(root, small.before(small.T0) - 40 * 86_400_000_000, "past")
    old = small.trained(root, past, "old", **STRUCTURE)
    trainer, known = train.prepare(
        train.Config(**{**small.CONFIG, **STRUCTURE}), after(old, inputs, past["features"]), RunContext(threads=1)
    )
    cold, _ = train.prepare(train.Config(**{**small.CONFIG, **STRUCTURE}), inputs, RunContext(threads=1))
    before = FrozenLearner.open(old)
    old_ids = old.table("known_product.parquet")["entity_id"].combine_chunks()
    place = index_in(known["product"], old_ids)
    assert 0 < (place >= 0).sum() < len(place)
    rows = slice(1, 1 + len(place))
    kept = torch.from_numpy(place >= 0)
    for name in ("source_ids", "target_ids"):
        table = getattr(trainer.student.encoder, name).detach()
        trained = getattr(before.model.encoder, name)
        assert torch.equal(table[rows][kept], trained[torch.from_numpy(place[place >= 0] + 1)])
        start = getattr(cold.student.encoder, name).detach()[rows][~kept]
        assert torch.allclose(table[rows][~kept].norm(dim=1), start.norm(dim=1), atol=1e-5), "turned, not stretched"
        assert start.norm() > 0
        assert not table[0].any()
    both = zip(trainer.student.parameters(), trainer.teacher.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in both)


def test_views_on_other_axes_start_where_they_were(inputs, root, monkeypatch):
    """The same views turned: a new entity starts near what its views would have been on the axes of before."""
    old = small.trained(root, inputs, "whole", **STRUCTURE)
    known = old.table("known_product.parquet")["entity_id"].combine_chunks()
    fewer = make_ref(root, "learner", lambda out: _without(old, out, known[-1].as_py()), "fewer")
    tables, turn = train.id_tables, rotation(3, 24)

    def turned(*given):
        return type(tables(*given))(*(found @ turn for found in tables(*given)))

    monkeypatch.setattr(train, "id_tables", turned)
    config = train.Config(**{**small.CONFIG, **STRUCTURE})
    trainer, _ = train.prepare(config, after(fewer, inputs), RunContext(threads=1))
    monkeypatch.setattr(train, "id_tables", tables)
    cold, _ = train.prepare(config, inputs, RunContext(threads=1))
    row = len(known)
    for name in ("source_ids", "target_ids"):
        found, wanted = (getattr(t.student.encoder, name).detach()[row] for t in (trainer, cold))
        assert torch.cosine_similarity(found, wanted, dim=0) > 0.9
        assert torch.cosine_similarity(found, wanted @ torch.from_numpy(turn), dim=0) < 0.9


def _without(ref, out, name):
    """The learner `ref` without the last product's residual."""
    tensors, described = load_file(ref.file("model.safetensors")), ref.json("learner.json")
    ids = ref.table("known_product.parquet")["entity_id"].combine_chunks()
    assert ids[-1].as_py() == name
    for role in ("source_ids", "target_ids"):
        table = tensors[f"learner.encoder.{role}"]
        tensors[f"learner.encoder.{role}"] = torch.cat([table[: len(ids)], table[len(ids) + 1 :]])
    described["shape"]["id_rows"] -= 1
    out.write_tensors("model.safetensors", tensors)
    out.write_json("learner.json", described)
    out.write_table("known_product.parquet", pa.table({"entity_id": ids[:-1]}))
    out.write_table("known_advertiser.parquet", ref.table("known_advertiser.parquet"))


@pytest.mark.parametrize("gated", [False, True])
def test_content_on_other_axes_is_turned_back(root, inputs, gated):
    old = small.trained(root, inputs, f"gate{gated}", gated_fusion=gated)
    turn = rotation(1, small.CONTENT_DIM)

    def write(out):
        for name in inputs["features"].manifest["files"]:
            if name.endswith(".npy") and not name.startswith("mask"):
                out.write_array(name, np.asarray(inputs["features"].array(name) @ turn, np.float32))
            else:
                out.file(name).write_bytes(inputs["features"].file(name).read_bytes())

    today = {**inputs, "features": make_ref(root, "features", write, f"turned{gated}")}
    ref = small.trained(
        root, after(old, today, inputs["features"]), f"back{gated}", gated_fusion=gated, warm={"steps": 0}
    )
    assert ref.metrics["warm_start"]["content_cosine"] == pytest.approx(1, abs=1e-5)
    for kind, count in (("product", 40), ("advertiser", 5), ("user", 30)):
        assert np.allclose(vectors(ref, today, kind, count), vectors(old, inputs, kind, count), atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"levels": [{"k": 4, "top": 2}, {"k": 9, "top": 2}]}, "levels [4, 8], not [4, 9]"),
        ({"dim": 18}, "dim 16, not 18"),
        ({"user_heads": 2}, "user_heads 1, not 2"),
    ],
)
def test_other_sizes_start_cold_and_say_so(root, inputs, first, changes, said, capsys):
    config = train.Config(**{**small.CONFIG, **changes})
    ctx = RunContext(threads=1, progress=Progress(sys.stdout))
    trainer, _ = train.prepare(config, after(first, inputs), ctx)
    assert trainer.before is None
    assert trainer.steps == small.CONFIG["steps"]
    assert f"the one before it, {first.key}, has {said}" in capsys.readouterr().out


def test_other_content_and_a_learner_of_another_version_start_cold(root, inputs, first, capsys):
    rng = np.random.default_rng(0)

    def write(out):
        for name in inputs["features"].manifest["files"]:
            if name.startswith("content"):
                shape = inputs["features"].array(name).shape
                out.write_array(name, unit(rng.standard_normal(shape).astype(np.float32)))
            elif name.endswith(".parquet"):
                out.write_table(name, inputs["features"].table(name))

    unlike = make_ref(root, "features", write, "unlike")

    def strange(out):
        out.write_tensors("model.safetensors", {"learner.other": torch.zeros(1)})
        out.write_json("learner.json", first.json("learner.json"))

    other = make_ref(root, "learner", strange, "strange")
    ctx = RunContext(threads=1, progress=Progress(sys.stdout))
    config = train.Config(**small.CONFIG)
    assert train.prepare(config, after(first, inputs, unlike), ctx)[0].before is None
    assert "is not like that before" in capsys.readouterr().out
    assert train.prepare(config, after(other, inputs), ctx)[0].before is None
    assert "other parts" in capsys.readouterr().out
    with pytest.raises(BadDataError, match="expected file"):
        train.prepare(config, after(make_ref(root, "learner", lambda out: None, "bare"), inputs), ctx)


def test_switched_off_it_starts_cold(root, inputs, first):
    ref = small.trained(root, after(first, inputs), "off", warm_start=False)
    assert sha256_file(ref.file("model.safetensors")) == sha256_file(first.file("model.safetensors"))


@pytest.mark.parametrize("killed_at", [2, 7])
def test_a_killed_run_resumes_to_identical_files(root, inputs, first, killed_at):
    warm = {"warm": {"steps": 10}}
    whole = small.trained(root, after(first, inputs), f"whole{killed_at}", **warm)
    with small.killed(killed_at):
        small.trained(root, after(first, inputs), f"killed{killed_at}", **warm)
    resumed = small.trained(root, after(first, inputs), f"killed{killed_at}", **warm)
    for name in ("model.safetensors", "training.jsonl"):
        assert sha256_file(resumed.file(name)) == sha256_file(whole.file(name))


def test_other_numbers_of_hub_tokens_keep_the_primitives(root, inputs, first):
    trainer, _ = train.prepare(
        train.Config(**{**small.CONFIG, "hub_children": 2}), after(first, inputs), RunContext(threads=1)
    )
    before = FrozenLearner.open(first).prototypes
    assert torch.equal(trainer.prototypes.vectors(1), before.vectors(1))
    assert trainer.prototypes.get_buffer("children_1").shape == (4, 2)
    assert (trainer.prototypes.get_buffer("children_1") >= 0).any()


def test_products_gone_from_the_log_lose_their_residual_and_no_other(root, inputs, first):
    """The other way round: today's log is the shorter one."""
    past = small.shop(root, small.before(small.T0) - 40 * 86_400_000_000, "shorter")
    trainer, known = train.prepare(train.Config(**small.CONFIG), after(first, past), RunContext(threads=1))
    assert len(known["product"]) < first.metrics["ids"]["product"]
    old_ids = first.table("known_product.parquet")["entity_id"].combine_chunks()
    place = index_in(known["product"], old_ids)
    assert (place >= 0).all()
    table = trainer.student.encoder.source_ids.detach()[1 : 1 + len(place)]
    assert torch.equal(table, FrozenLearner.open(first).model.encoder.source_ids[torch.from_numpy(place + 1)])
    assert GraphStore.open(past["graph"]).num_nodes["product"] > 0


def test_every_rate_is_lowered(inputs, first):
    plain, warm = small.prepared(inputs), small.prepared(after(first, inputs), warm={"lr_factor": 0.5})
    rates, lowered = (sorted(group["peak"] for group in each.optimizer.param_groups) for each in (plain, warm))
    assert lowered == pytest.approx([rate / 2 for rate in rates])
