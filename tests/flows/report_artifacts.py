"""Small artifacts of every stage the report reads, with hostile text in every place a person could have written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from data import parts, vectors
from data.artifacts import ArtifactRef, Store
from data.schema import ADVERTISERS, EVENTS, PRIMITIVE_EDGES, PRIMITIVES, PRODUCTS, TOKENS, USERS

HOSTILE = "<img src=x onerror=\"window.stolen='image'\"></script><script>window.stolen='script'</script>\u2028&amp;'\""
WORDS = (
    "Soft Drinks,Cola,Ginger Ale;Baby,Diapers,Formula;Cheese,Cheddar,Brie;Bakery,Rye Bread,Bagels;"
    "Pet Food,Cat Treats,Dog Bones;Frozen,Pizza,Ice Cream;Produce,Apples,Salad Greens;Cleaning,Laundry,Paper Towels"
)
FAMILIES = [family.split(",") for family in WORDS.split(";")]
METRICS = {"index": {"vectors": {"product": 96, "user": 40}, "recall@10": {"product": 1.0, "user": 0.98765}}}
DAY = 86_400_000_000
START = 1_488_326_400_000_000
AS_OF = START + 200 * DAY


class Artifacts:
    """A store of small artifacts. Each stage's name is an attribute of `refs`, ready for `flows.report.run`."""

    def __init__(self, root: Path, users: int = 40, products: int = 96, children: int = 3) -> None:
        self.store, self.random = Store(root), np.random.default_rng(7)
        self.users = [f"user{i}" for i in range(users)]
        self.products = [f"p{i:03d}" for i in range(products)]
        self.titles = [f"{FAMILIES[i % 8][1 + i % 2]} No. {i}" for i in range(products)]
        self.titles[3] = HOSTILE
        self.advertisers = [f"brand{i}" for i in range(8)]
        self.children = children
        self.refs: dict[str, ArtifactRef] = {}
        for stage in ("events", "learner", "supergraph", "tokens", "index", "evaluation", "examples", "ranker"):
            self.publish(stage)

    def inputs(self) -> dict[str, ArtifactRef]:
        """What the report stage receives."""
        return {name: self.refs[name] for name in ("events", "supergraph", "tokens", "index", "evaluation", "ranker")}

    def publish(self, stage: str, **changed: Any) -> ArtifactRef:
        """Write `stage` anew, under a key of its own; `changed` goes to the method that writes it."""
        key = f"{stage}-{sum(path.is_dir() for path in (self.store.root / stage).glob('*'))}"
        links = {
            "learner": ("events",),
            "supergraph": ("events", "learner"),
            "evaluation": ("events", "supergraph"),
            "examples": ("events", "tokens"),
            "ranker": ("examples",),
        }
        causes = {
            "inputs": {name: self.refs[name].key for name in links.get(stage, ())},
            "seed": 0,
            "metrics": METRICS.get(stage, {}),
        }
        timing = {"duration_s": 1.5 + len(stage), "peak_rss_mb": 300.0 + len(stage)}
        with self.store.publish(stage, key, {**causes, **timing}) as (out, _):
            getattr(self, f"_{stage}")(out, **changed)
        self.refs[stage] = self.store.get(stage, key)
        return self.refs[stage]

    def _events(
        self,
        out: Any,
        event_type: str = "purchase",
        known_after_days: int = 0,
        time_kind: str = "clock",
        simulated: bool = False,
        images: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        rows = [self._event(i, event_type, known_after_days) for i in range(30 * len(self.users))]
        parts.write_events(out, [parts.in_order(pa.Table.from_pylist(rows, schema=EVENTS))])
        _write(out, "products.parquet", PRODUCTS, [self._product(i, images) for i in range(len(self.products))])
        brands = [
            {"advertiser_id": a, "name": HOSTILE if i == 0 else f"Brand {i}", "vertical": "Grocery", "known_at": START}
            for i, a in enumerate(self.advertisers)
        ]
        _write(out, "advertisers.parquet", ADVERTISERS, brands)
        people = [
            {"user_id": u, "attributes": [("age", HOSTILE if u == "user1" else "45-54")], "known_at": START}
            for u in self.users
        ]
        _write(out, "users.parquet", USERS, people)
        counts = {"events": len(rows), "products": len(self.products), "advertisers": 8, "users": len(self.users)}
        out.write_json(
            "summary.json",
            {
                "name": "toy groceries " + HOSTILE,
                "time_kind": time_kind,
                "first_ts": START,
                "last_ts": AS_OF + 20 * DAY,
                "counts": {event_type: len(rows)},
                "rows": {**counts, "quarantine": 2},
                "sample_prob": {event_type: 1.0},
                **({"simulated": True} if simulated else {}),
            },
        )

    def _event(self, i: int, event_type: str, known_after_days: int) -> dict[str, Any]:
        owner = i % len(self.users)
        product = (owner + 8 * int(self.random.integers(12))) % len(self.products)
        ts = START + (i % 220) * DAY + i
        return {
            "event_id": f"e{i}",
            "user_id": self.users[owner],
            "product_id": self.products[product],
            "advertiser_id": None,
            "event_type": event_type,
            "ts": ts,
            "known_at": ts + known_after_days * DAY,
            "value": 1.25 + i % 7,
            "sample_prob": 1.0,
            "source": "toy",
        }

    def _product(self, i: int, images: Mapping[str, str]) -> dict[str, Any]:
        return {
            "image": [images[self.products[i]]] if self.products[i] in images else None,
            "product_id": self.products[i],
            "advertiser_id": self.advertisers[i % 8],
            "title": self.titles[i],
            "category": [FAMILIES[i % 8][0], FAMILIES[i % 8][1 + i % 2]],
            "price": 2.5,
            "first_seen": START,
            "known_at": START,
        }

    def _learner(self, out: Any) -> None:
        out.write_json("learner.json", {"levels": [8, 8 * self.children]})

    def _supergraph(self, out: Any, levels: int = 2, hostile: bool = True, linked: bool = True) -> None:
        rows: list[dict[str, Any]] = []
        for c, family in enumerate(FAMILIES):
            centre = self.random.normal(size=16)
            rows.append(self._primitive(1, c, None, centre, family[0], family))
            for f in range(self.children if levels > 1 else 0):
                child, label = c * self.children + f, f"{family[1 + f % 2]} {f}"
                label = HOSTILE if hostile and child == 0 else label
                near = centre + 0.6 * self.random.normal(size=16)
                rows.append(self._primitive(2, child, f"L1-{c:04d}", near, label, family))
        rows.sort(key=lambda row: row["primitive_id"])
        self.primitives = rows
        _write(out, "primitives.parquet", PRIMITIVES, rows)
        edges = [
            {
                "level": r["level"],
                "source": r["primitive_id"],
                "target": r["parent_id"],
                "relation": "parent",
                "weight": 1.0,
            }
            for r in rows
            if r["parent_id"]
        ]
        links = [("L1-0000", "L1-0002", "co_purchase", 0.8), ("L1-0000", "L1-0003", "then_purchase", 0.75)]
        links += [("L1-0000", "L1-0001", "then_purchase", 0.25), ("L1-0005", "L1-0000", "then_purchase", 0.5)]
        links.append(("L1-0000", "L1-0007", "advertiser_purchase", 1.0))
        names = ("source", "target", "relation", "weight")
        edges += [{"level": 1, **dict(zip(names, link, strict=True))} for link in links if linked]
        _write(out, "primitive_edges.parquet", PRIMITIVE_EDGES, edges)

    def _primitive(
        self, level: int, index: int, parent: str | None, vector: Any, label: str, family: list[str]
    ) -> dict[str, Any]:
        return {
            "vocab_version": "vocabulary-1",
            "level": level,
            "primitive_id": f"L{level}-{index:04d}",
            "parent_id": parent,
            "vector": (vector / np.linalg.norm(vector)).tolist(),
            "mass": 1.0 + index % 5,
            "label": label,
            "top_terms": [word.lower() for word in family],
            "top_products": self.products[index % 8 :: 8][:3],
        }

    def _tokens(self, out: Any) -> None:
        rows: list[dict[str, Any]] = []
        for kind, ids in (("advertiser", self.advertisers), ("product", self.products), ("user", self.users)):
            for i, entity in sorted(enumerate(ids), key=lambda pair: pair[1]):
                for as_of in (AS_OF - 7 * DAY, AS_OF) if kind == "user" else (AS_OF - 7 * DAY,):
                    rows += self._bag(kind, entity, i % 8, as_of)
        _write(out, "tokens/all.parquet", TOKENS, rows)

    def _bag(self, kind: str, entity: str, coarse: int, as_of: int) -> list[dict[str, Any]]:
        fine = [coarse * self.children, coarse * self.children + 1, (coarse * self.children + 4) % (8 * self.children)]
        bag = []
        for level, members in ((1, [coarse, (coarse + 1) % 8]), (2, fine)):
            for rank, member in enumerate(members):
                weight = (0.7, 0.2, 0.1)[rank] if level == 2 else (0.75, 0.25)[rank]
                bag.append(
                    {
                        "entity_id": entity,
                        "entity_type": kind,
                        "level": level,
                        "primitive_id": f"L{level}-{member:04d}",
                        "weight": weight,
                        "residual": 0.125,
                        "rank": rank,
                        "vocab_version": "vocabulary-1",
                        "model_version": "model-1",
                        "as_of": as_of,
                    }
                )
        return bag

    def _index(self, out: Any) -> None:
        kinds = {"product": self.products, "user": self.users, "advertiser": self.advertisers}
        kinds["primitive"] = [row["primitive_id"] for row in self.primitives]
        for kind, ids in kinds.items():
            known = kind == "product"
            table = {
                "entity_id": ids,
                "title": self.titles if known else ids,
                "advertiser_id": [self.advertisers[i % 8] for i in range(len(ids))] if known else [None] * len(ids),
                "category": [" > ".join(FAMILIES[i % 8][:2]) for i in range(len(ids))] if known else [None] * len(ids),
            }
            types = {name: pa.array(values, pa.string()) for name, values in table.items()}
            out.write_table(f"entities_{kind}.parquet", pa.table(types))
            drawn = self.random.normal(size=(len(ids), 16)).astype(np.float32)
            vectors.save(vectors.build(drawn, np.arange(len(ids))), out.file(f"{kind}.faiss"))

    def _evaluation(self, out: Any, rows: list[dict[str, Any]] | None = None) -> None:
        methods = {"popularity": 0.12, "own frequency": 0.33, "item-kNN": 0.27, "learner": 0.31, HOSTILE: 0.01}
        made = [
            {
                "method": m,
                "protocol": p,
                "split": s,
                "recall@20": round(r * (1 if s == "test" else 0.9), 4),
                "users": 700,
            }
            for m, r in methods.items()
            for p in ("all", "new")
            for s in ("validation", "test")
        ]
        out.write_json("retrieval.json", made if rows is None else rows)
        shape = {"active_share": 0.96, "perplexity": 7.4, "nmi_category": 0.61, "duplicates": 0.0}
        levels = [{"level": level, "k": k, "category_depth": level, **shape} for level, k in ((1, 8), (2, 24))]
        out.write_json("levels.json", levels)

    def _ranker(self, out: Any, arms: bool = True) -> None:
        figures = {"auc": 0.9, "calibration": 1.02, "rows": 9000, "positives": 900}
        buckets = [("surface", HOSTILE, True), ("user_history", "new (0)", False), ("user_history", "21-200", True)]
        rows = [
            {
                "model": "ranker",
                "arm": arm,
                "seed": seed,
                "split": split,
                "ne": ne + seed / 1000,
                **figures,
                "slices": [{"slice": s, "bucket": b, "ne": ne, **figures, "claim": c} for s, b, c in buckets],
            }
            for arm, ne in (("tokens", 0.73), ("no_tokens", 0.74))
            for seed in (0, 1, 2)
            for split in ("validation", "test")
        ]
        summary = [
            {
                "model": m,
                "arm": a,
                "fits": 3,
                "ne": {"mean": ne, "sd": 0.001},
                "auc": {"mean": 0.9, "sd": None},
                "calibration": {"mean": 1.0, "sd": 0.01},
            }
            for m, a, ne in (("ranker", "tokens", 0.731), ("ranker", "no_tokens", 0.741), ("dcnv2", "baseline", 0.735))
        ]
        pairs = [
            {"seed": s, "ne": 0.73 + s / 1000, "control_ne": 0.74 + s / 1000, "difference": -0.01, "relative": -0.0135}
            for s in (0, 1, 2)
        ]
        difference = {
            "seeds": pairs,
            "difference": {"mean": -0.01, "sd": 0.0},
            "relative": {"mean": -0.0135, "sd": 0.0},
        }
        interval = {"difference_interval_95": [-0.015, -0.005]}
        paired = {"tokens_vs_no_tokens": {**difference, **interval}} if arms else {}
        out.write_json("comparison.json", {"summary": summary, **paired})
        out.write_json("evaluation.json", rows)
        groups = {"history": 0.05, "user tokens": 0.01, "user id": -0.001}
        out.write_json(
            "importance.json",
            [
                {"model": "ranker", "arm": "tokens", "seed": 0, "group": g, "ne": 0.7, "increase": v}
                for g, v in groups.items()
            ],
        )

    def _examples(self, out: Any) -> None:
        out.write_json("examples.json", {"rows": 1000})


def _write(out: Any, name: str, schema: pa.Schema, rows: list[dict[str, Any]]) -> None:
    out.write_table(name, pa.Table.from_pylist(rows, schema=schema))


def page_data(html: str) -> dict[str, Any]:
    """The JSON that the page carries."""
    start = html.index('type="application/json">') + len('type="application/json">')
    return dict(json.loads(html[start : html.index("</script>", start)]))
