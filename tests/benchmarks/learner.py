"""The learner at speed: training edges and encoded entities a second, parts of a step, and a peer in plain PyG.

Everything is made from a seed where it is measured. Speeds are given only after a gate: the losses of a step are finite
and, on a GPU, those of the CPU; the peer learns from the very inputs of our steps.

`python -m tests.benchmarks.learner [--device cpu|cuda]`; see `main`.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from typing import Any

import numpy as np
import torch

from graph.sampler import Budget
from hierarchy.inference import encode_nodes
from hierarchy.passes import allow_tf32
from hierarchy.trainer import Trainer
from tests.benchmarks.learner_speed import measures
from tests.benchmarks.learner_speed.shop import Shop, made_shop, made_trainer
from tests.benchmarks.rows import hand_over, take_over
from tests.benchmarks.sampler import SPAN, machine

CONTENT = 384
LEVELS = [{"k": 16, "top": 2}, {"k": 128, "top": 4}, {"k": 512, "top": 8}]
SIZES: dict[str, dict[str, Any]] = {
    "cpu": {"edges": 200_000, "batch_size": 256, "dim": 64, "warm": 6, "steps": 6, "rounds": 2},
    "cuda": {"edges": 10_000_000, "batch_size": 8192, "dim": 128, "warm": 48, "steps": 24, "rounds": 3},
}
"""`warm`: steps before the first that counts; on a GPU by then each form of a step has been recorded."""
USER, ITEM = Budget(recent=16, uniform=48, two_hop=0, links=0), Budget(recent=8, uniform=0, two_hop=8, links=4)


def options(batch_size: int, dim: int, precision: str) -> dict[str, Any]:
    """Settings of the learner, all others at their defaults."""
    return {
        "batch_size": batch_size,
        "dim": dim,
        "negatives": batch_size,
        "levels": LEVELS,
        "user_budget": USER,
        "item_budget": ITEM,
        "warmup_steps": 0,
        "steps": 100_000,
        "precision": precision,
        "distillation": {"seeds": min(1024, batch_size), "queue": 8192},
    }


def check(device: str) -> None:
    """Raise AssertionError unless losses are finite and, up to rounding, those of the CPU."""
    shop, losses = made_shop(20_000), []
    for where in dict.fromkeys(("cpu", device)):
        trainer = made_trainer(shop, 32, where, **(options(64, 32, "fp32") | {"id_dropout": 0.0, "warmup_steps": 9}))
        losses.append([float(trainer.step(step, trainer.draw(step))["link"].detach()) for step in range(3)])
    assert np.isfinite(losses).all(), f"losses are not finite: {losses}"
    assert np.allclose(losses[0], losses[-1], rtol=1e-3), f"losses on cpu and {device} differ: {losses}"


def speeds(trainer: Trainer, plain: Trainer, size: dict[str, Any], shape: str, precision: str) -> list[dict[str, Any]]:
    """Rows of training edges a second: whole steps, those of `plain` (links alone), and the peer's, which learns from
    links alone too.
    """
    trainer.step(0, trainer.draw(0))
    whole, ours = (_rates(each.step, each, size) for each in (trainer, plain))
    found = [
        row("learner, training", "edges", "1/s", shape, precision, whole),
        row("learner, training on links alone", "edges", "1/s", shape, precision, ours),
    ]
    try:
        from tests.benchmarks.learner_speed.peer import PlainLearner
    except ImportError as error:
        print(f"no peer: {error}", file=sys.stderr)
        return found
    shape_of = trainer.student.encoder.shape
    peer = PlainLearner(shape_of, trainer.batches.table.content.shape[1]).to(trainer.device)
    optimizer = torch.optim.AdamW(peer.parameters(), lr=1e-3, fused=True)

    def step(_: int, given: Any) -> None:
        with torch.autocast(trainer.device.type, torch.bfloat16, enabled=precision == "bf16"):
            loss = peer.loss(given)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    name, theirs = "PyG TransformerConv", _rates(step, plain, size)
    found.append(row("learner, training on links alone", "edges", "1/s", shape, precision, theirs, name))
    ratio = [one / other for one, other in zip(ours, theirs, strict=True)]
    found.append(row("learner, links alone against PyG", "ratio", "x", shape, precision, ratio, name))
    return found


def _rates(step: Any, trainer: Trainer, size: dict[str, Any]) -> list[float]:
    """Edges a second in each of some rounds after the steps that warm up, on inputs drawn by `trainer`."""
    steps, first = size["steps"], 1 + size["warm"]
    measures.step_seconds(step, trainer, 1, size["warm"])
    begins = range(first, first + size["rounds"] * steps, steps)
    return [steps * trainer.config.batch_size / measures.step_seconds(step, trainer, n, steps) for n in begins]


def parts(trainer: Trainer, steps: int, shape: str, precision: str) -> list[dict[str, Any]]:
    """Rows of the shares of a step, and on a GPU how busy it is."""
    spent = measures.profile(trainer, 1, steps)
    total = sum(spent.values())
    found = [
        row(f"learner, {name} in a step", "share", "1", shape, precision, [seconds / total])
        for name, seconds in spent.items()
    ]
    if trainer.device.type == "cuda":
        busy = measures.busy_share(trainer, 1, steps)
        found.append(row("learner, GPU busy while training", "share", "1", shape, precision, [busy]))
    return found


def memory(shop: Shop, size: dict[str, Any], precision: str) -> list[dict[str, Any]]:
    """Rows of a step's peak memory on a GPU against its batch, and against the graph."""
    found, batch = [], size["batch_size"]
    small = made_shop(size["edges"] // 10)
    for graph, sizes in ((shop, (batch // 4, batch // 2, batch, 2 * batch)), (small, (batch,))):
        for edges in sizes:
            trainer = made_trainer(graph, CONTENT, "cuda", **options(edges, size["dim"], precision))
            trainer.step(0, trainer.draw(0))
            before, peak = measures.peak_memory(trainer, 2)
            where = f"batch {edges}, {shape_of(graph, trainer)}"
            found.append(row("learner, resident before a step", "bytes", "MiB", where, precision, [before / 2**20]))
            found.append(row("learner, peak of a step", "bytes", "MiB", where, precision, [peak / 2**20]))
            del trainer
            gc.collect()  # a trainer and what it recorded name each other
            torch.cuda.empty_cache()
    return found


def inference(trainer: Trainer, shop: Shop, shape: str) -> list[dict[str, Any]]:
    """Rows of entities encoded a second with all their tokens and primitives, results on the host."""
    found = []
    for kind in ("user", "product"):
        nodes = np.arange(min(shop.num_nodes[kind], 1_000_000))
        times, rates = np.full(len(nodes), SPAN, np.int64), []
        for count in (min(len(nodes), 16_384), *[len(nodes)] * 3):
            start = time.perf_counter()
            some = nodes[:count], times[:count]
            encode_nodes(
                trainer.teacher.encoder,
                trainer.prototypes,
                trainer.batches.table,
                trainer.samplers[kind],
                kind,
                *some,
                0,
            )
            rates.append(count / (time.perf_counter() - start))
        where = f"{len(nodes)} {kind}s, {shape}"
        found.append(row("learner, inference", "entities", "1/s", where, "fp32", rates[1:]))
    return found


def shape_of(shop: Shop, trainer: Trainer) -> str:
    """A shop and a learner in words."""
    config = trainer.config
    return (
        f"{shop.num_nodes['user']} users, {shop.num_nodes['product']} products, content {CONTENT}, dim {config.dim}, "
        f"{config.layers} layers, T {config.user_budget.total} and {config.item_budget.total}"
    )


def measured(device: str, precision: str) -> list[dict[str, Any]]:
    """All rows of one device."""
    check(device)
    _say("losses are those of the CPU")
    size = SIZES[device]
    shop = made_shop(size["edges"])
    _say(f"a shop of {size['edges']} edges is made")
    with allow_tf32(precision):  # type: ignore[arg-type]
        settings = options(size["batch_size"], size["dim"], precision)
        trainer = made_trainer(shop, CONTENT, device, **settings)
        shape = f"batch {size['batch_size']}, {shape_of(shop, trainer)}"
        links = {"warmup_steps": 100_000} | {k: v for k, v in settings.items() if k != "warmup_steps"}
        plain = made_trainer(shop, CONTENT, device, **links)
        _say("trainers are made")
        found = speeds(trainer, plain, size, shape, precision)
        del plain
        gc.collect()
        _say("speeds are measured")
        found += parts(trainer, size["steps"], shape, precision)
        found += inference(trainer, shop, shape_of(shop, trainer))
        _say("a step and inference are measured")
        del trainer
        gc.collect()
        if device == "cuda":
            found += memory(shop, size, precision)
    where = {"machine": machine(device), "versions": f"torch={torch.__version__};numpy={np.__version__}"}
    return [line | where for line in found]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def row(
    what: str, metric: str, unit: str, shape: str, dtype: str, samples: list[float], peer: str = ""
) -> dict[str, Any]:
    """One row of a result file."""
    low, middle, high = (float(f"{mark:.4g}") for mark in np.quantile(samples, (0.2, 0.5, 0.8)))
    spread = {"p20": low, "p50": middle, "p80": high} if len(samples) > 1 else {"p20": "", "p50": middle, "p80": ""}
    return {"what": what, "peer": peer, "metric": metric, "unit": unit, "shape": shape, "dtype": dtype, **spread}


def main(arguments: list[str] | None = None) -> None:
    """Print the rows and append them to results/learner.csv, or write them to `--file` as JSON lines.

    A machine that has torch but not all of the project's dependencies can only do the latter; `--add FILE --commit SHA`
    then appends what it wrote.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=sorted(SIZES), default="cpu")
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16"), default="fp32")
    parser.add_argument("--file", default="", help="write rows here, as JSON lines, instead of to results/learner.csv")
    parser.add_argument("--add", default="", help="append the rows of such a file and measure nothing")
    parser.add_argument("--commit", default="", help="the commit that the added rows were measured on")
    given = parser.parse_args(arguments)
    if given.add:
        return take_over("learner", given.add, given.commit)
    found = measured(given.device, given.precision)
    for line in found:
        print(f"{line['p50']:>12.4g} {line['unit']:5} {line['what']} {line['peer']} | {line['shape']}")
    hand_over("learner", found, given.file)


if __name__ == "__main__":
    main()
