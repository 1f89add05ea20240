"""Stage report: one self-contained HTML page that shows what a pipeline run found, how good it is and what it cost."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from pydantic import Field

from data.artifacts import ArtifactRef, OutputDir
from data.context import Metrics, RunContext, StageConfig, derive_seed, execution
from data.schema import from_micros
from data.timegrid import TOKENS
from flows import report_bags as bags
from flows import report_cards as cards
from flows import report_pictures as pictures
from flows import report_ranker as ranker
from flows import report_simulated as simulated
from flows import report_tables as tables
from flows import report_tree as tree
from flows.report_map import load_interests, product_dots

_HERE = Path(__file__).parent
Tile = dict[str, str]
_KINDS = {"user": "A person", "product": "A product", "advertiser": "An advertiser"}
_LEAD = (
    "Strata reads an engagement log and a catalogue, learns interests at several levels of detail, and describes every "
    "user, product and advertiser by a few of them. This page shows the interests, examples in words, and how good "
    "they are."
)


class Config(StageConfig):
    """What the page shows. None of it changes any other artifact."""

    title: str = Field(default="What people are interested in", description="heading of the page")
    entities: int = Field(default=30, ge=1, le=500, description="bags of meaning embedded in the page, per entity type")
    recent: int = Field(default=12, ge=1, le=100, description="recent events shown beside a user's bag, lines")
    interests: int = Field(
        default=1500, ge=1, le=5000, description="primitives of each level on the map, heaviest first"
    )
    dots: int = Field(default=1200, ge=0, le=10_000, description="products drawn on the map, a sample by hash")
    products: int = Field(default=6, ge=0, le=50, description="typical products named for one interest")
    neighbours: int = Field(default=5, ge=0, le=50, description="nearest interests named for one interest")
    picture_size: int = Field(default=80, ge=16, le=96, description="side of a product's picture [pixels]")
    picture_bytes: int = Field(default=4_000_000, ge=0, description="most that all pictures add to the page [bytes]")
    media_root: Path | None = execution(None, "folder of the pictures; always that of features, so of no effect here")


def run(config: Config, inputs: Mapping[str, ArtifactRef], out: OutputDir, ctx: RunContext) -> Metrics:
    """Write report.html: no outside resource, every text escaped.

    Equal inputs give an equal page (its timings are those in the manifests). Time grows with one pass over events
    and tokens; memory with users, products and the entities shown.
    """
    drawn = gather(config, inputs, ctx)
    html = render(config, inputs, drawn)
    out.file("report.html").write_text(html, encoding="utf-8")
    counts = {"interests": len(drawn["interests"]), "entities": sum(map(len, drawn["bags"].values()))}
    return {"bytes": len(html.encode()), **counts}


def gather(config: Config, inputs: Mapping[str, ArtifactRef], ctx: RunContext) -> dict[str, Any]:
    """What the page's script draws: levels, interests, product dots, bags by entity type, pictures if there are any.

    All of it is JSON-able.
    """
    events, tokens = inputs["events"], inputs["tokens"]
    interests = load_interests(inputs["supergraph"], config.interests, config.neighbours)
    summary = events.json("summary.json")
    event_type = bags.shown_type(summary)
    users, bought = bags.activity(events, event_type)
    owner = cards.owners(inputs["index"])
    sold = cards.sold(owner, bought)
    people = bags.choose(users, tokens, "user", config.entities)
    products = bags.choose(bought, tokens, "product", config.entities)
    advertisers = bags.choose(sold, tokens, "advertiser", config.entities)
    past = bags.recent(events, {user: rows[0]["as_of"] for user, rows in people.items()}, event_type, config.recent)
    leading = cards.leading_products(advertisers, owner, bought)
    sample = sorted(owner, key=lambda product: derive_seed(ctx.seed, "report", product))[: config.dots]
    dots = product_dots(interests, bags.last_bags(tokens, "product", sample))

    for interest in interests:
        interest["products"] = interest["products"][: config.products]
    named = [dots, products, *leading.values(), *(interest["products"] for interest in interests)]
    named.extend([product for _, product, _ in rows] for rows in past.values())
    rows = bags.catalogue(events, chain.from_iterable(named))
    typical = [interest["products"] for interest in interests]
    for interest in interests:
        interest["products"] = [bags.title_of(product, rows) for product in interest["products"]]
    writer = cards.CardWriter(events, interests, rows, summary)
    drawn = {
        "levels": sorted({interest["level"] for interest in interests}),
        "interests": interests,
        "dots": [[*place, bags.title_of(product, rows)] for product, place in sorted(dots.items())],
        "bags": {
            "user": writer.users(people, users, past),
            "product": writer.products(products, bought),
            "advertiser": writer.advertisers(advertisers, sold, leading),
        },
    }
    seen = {user: [product for _, product, _ in lines] for user, lines in past.items()}
    first = chain(*typical, products, *leading.values(), *seen.values())
    limits = (config.picture_size, config.picture_bytes, ctx.threads)
    album = pictures.Album(pictures.load(config.media_root, rows, first, *limits), rows)
    pictures.illustrate(drawn, album, typical, {"user": seen, "advertiser": leading})
    return drawn


def render(config: Config, inputs: Mapping[str, ArtifactRef], drawn: Mapping[str, Any]) -> str:
    """The page. Jinja escapes every value but our own style sheet and script, whose hash the page's policy names."""
    script = _sources("js", drawn)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    summary = inputs["events"].json("summary.json")
    mark = simulated.mark_of(summary)
    refs = tables.collect_manifests(inputs)
    verdict, ranker_tables = ranker.section(inputs["ranker"])
    quality = [
        tables.retrieval(inputs["evaluation"].json("retrieval.json")),
        tables.levels(inputs["evaluation"].json("levels.json")),
        tables.churn(inputs["supergraph"].metrics.get("churn", {})),
        tables.search_index(inputs["index"].metrics),
    ]
    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return environment.get_template("report.html.jinja").render(
        title=config.title,
        name=summary["name"],
        mark=mark,
        notice=simulated.NOTICE,
        lead=_LEAD,
        tiles=_tiles(inputs, drawn, refs, mark),
        facts=_facts(summary, inputs),
        outline=tree.outline(drawn["interests"]),
        flow=tree.matrix(drawn["interests"], inputs["supergraph"], bags.shown_type(summary)),
        percent=tree.percent,
        kinds=[{"kind": kind, "heading": heading} for kind, heading in _KINDS.items()],
        quality=simulated.marked((made for made in quality if made["rows"]), mark),
        verdict=verdict,
        ranker=simulated.marked(ranker_tables, mark),
        cost=tables.cost(refs),
        page=drawn,
        style=Markup(_sources("css", drawn)),
        script=Markup(script),
        script_hash=f"sha256-{digest}",
    )


def _sources(kind: str, drawn: Mapping[str, Any]) -> str:
    """Our own script or style sheet, with the part about pictures only where the page has some."""
    names = [
        "report",
        *(["report_tree"] if kind == "css" else []),
        *(["report_pictures"] if "pictures" in drawn else []),
    ]
    return "".join((_HERE / f"{name}.{kind}").read_text(encoding="utf-8") for name in names)


def _tiles(
    inputs: Mapping[str, ArtifactRef], drawn: Mapping[str, Any], refs: Sequence[ArtifactRef], mark: str
) -> list[Tile]:
    summary = inputs["events"].json("summary.json")
    rows, events = summary["rows"], ", ".join(f"{count:,} {kind}s" for kind, count in _largest(summary["counts"]))
    sizes = Counter(interest["level"] for interest in drawn["interests"])
    interests = " + ".join(str(sizes[level]) for level in sorted(sizes))
    seconds = sum(ref.manifest.get("duration_s") or 0.0 for ref in refs)
    peak = max((ref.manifest.get("peak_rss_mb") or 0.0 for ref in refs), default=0.0)
    found = [
        _tile(f"{rows['events']:,}", "events read", events),
        _tile(f"{rows['users']:,}", "people", f"{rows['products']:,} products of {rows['advertisers']:,} advertisers"),
        _tile(f"{sizes.total():,}", "interests", f"{interests}, from broad to fine"),
        *tables.retrieval_tile(inputs["evaluation"].json("retrieval.json")),
        *ranker.tile(inputs["ranker"]),
    ]
    cost = _tile(f"{seconds / 60:.1f} min", "for the whole pipeline", f"at most {peak / 1024:.1f} GB of memory")
    return [*({**tile, "label": tile["label"] + mark} for tile in found), cost]


def _tile(value: str, label: str, note: str) -> Tile:
    return {"value": value, "label": label, "note": note}


def _largest(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:2]


def _facts(summary: Any, inputs: Mapping[str, ArtifactRef]) -> list[tuple[str, str]]:
    versions = next(inputs["tokens"].batches(TOKENS, ["vocab_version", "model_version"], rows=1)).to_pylist()[0]
    newest = max(pc.max(batch["as_of"]).as_py() for batch in inputs["tokens"].batches(TOKENS, ["as_of"]))
    first, last = (from_micros(summary[name]).date().isoformat() for name in ("first_ts", "last_ts"))
    clock = summary["time_kind"] == "clock"
    return [
        ("Described as of", from_micros(newest).date().isoformat() if clock else "the order of events alone"),
        ("Events from", f"{first} to {last}" if clock else "no clock: events are in order only"),
        ("Vocabulary version", versions["vocab_version"]),
        ("Model version", versions["model_version"]),
        *((f"Rows of {name}", f"{count:,}") for name, count in sorted(summary["rows"].items())),
        *((f"Events: {kind}", f"{count:,}") for kind, count in sorted(summary["counts"].items())),
    ]
