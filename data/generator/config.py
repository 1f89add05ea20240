"""What a generated log holds: sizes, habits, and what is planted in it."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from data.context import UtcTime
from data.schema import MICROS_PER_DAY, to_micros
from data.synthetic import START

BotBehaviour = Literal["burst", "focused"]
CANARIES = 20
"""Canary users, and as many canary products and advertisers."""

SLICE_ROWS = 1 << 19
"""Rows made at a time: a day of more rows is made in slices of its hours, which bounds memory."""


class Config(BaseModel):
    """A log of about `events` events of people, plus those of bots and canaries, over `days` days."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    users: int = Field(default=1000, description="users, bots among them", ge=10, lt=10**8)
    products: int = Field(default=500, description="products without the canaries", ge=10, lt=10**8)
    advertisers: int = Field(default=40, description="advertisers without the canaries", ge=1, lt=10**8)
    campaigns: int = Field(default=20, description="campaigns, one a advertiser at most", ge=0)
    events: int = Field(default=100_000, description="expected events of people over the whole log", ge=1)
    days: int = Field(default=60, description="days of the log", ge=1, le=9999)
    start: UtcTime = Field(default=START, description="midnight of the first day")
    seed: int = Field(default=0, description="seed of everything random")

    departments: int = Field(default=8, description="roots of the interest tree", ge=1)
    categories: int = Field(default=3, description="categories a department", ge=1)
    leaves: int = Field(default=3, description="leaves a category", ge=1)
    drift_days: float = Field(default=45, description="days after which a fine interest moves to another leaf", gt=0)
    fine_share: float = Field(default=0.55, description="share of impressions from the user's two leaves", ge=0, le=1)
    coarse_share: float = Field(default=0.2, description="share from its department at large; the rest is from all")
    user_skew: float = Field(default=0.7, description="Zipf exponent of user activity", ge=0)
    product_skew: float = Field(default=0.9, description="Zipf exponent of product popularity within a leaf", ge=0)
    cold_share: float = Field(default=0.15, description="share of users, products and advertisers that come late", lt=1)

    slate: int = Field(default=10, description="products shown in a request", ge=1, le=1000)
    position_decay: float = Field(default=0.7, description="a slot is looked at with chance (1 + position)^-decay")
    conversion_share: float = Field(default=0.003, description="conversions per event of people", ge=0, le=0.05)
    delay_days: float = Field(default=1.5, description="mean delay of conversions (exponential, cut at the next)", gt=0)
    max_delay_days: int = Field(default=7, description="longest delay of a conversion in days", ge=0)

    bots: float = Field(default=0.0, description="share of users that are bots", ge=0, le=0.5)
    bot_behaviours: tuple[BotBehaviour, ...] = Field(
        default=("burst",), description="behaviours, in turn: minutes of haste, or hours of patience", min_length=1
    )
    bot_events: int = Field(
        default=60, description="events of a bot on a day on which it acts; 0: idle", ge=0, le=100_000
    )
    bot_days: float = Field(default=0.5, description="share of days on which a bot acts", gt=0, le=1)
    bot_target_share: float = Field(default=0.6, description="share of its events on targets; the rest on the popular")
    bot_minutes: float = Field(default=10, description="length of a burst in minutes; no effect on the patient", gt=0)
    bot_hours: float = Field(default=14, description="waking hours of a patient bot; no effect on bursts", gt=0, le=24)
    targets: int = Field(default=10, description="products the bots push; no effect without bots", ge=1)

    canaries: int = Field(default=0, description="canary events", ge=0)
    canary_day: int = Field(default=0, description="no canary is readable before this day (from 0) of the log", ge=0)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if to_micros(self.start) % MICROS_PER_DAY:
            raise ValueError(f"start: expected a midnight UTC, got {self.start.isoformat()}")
        if self.advertisers < self.departments or self.products < 2 * self.num_leaves:
            least = f"{self.departments} advertisers and {2 * self.num_leaves} products"
            raise ValueError(f"expected at least {least}, got {self.advertisers} and {self.products}")
        if self.campaigns > self.advertisers:
            raise ValueError(f"expected at most a campaign an advertiser, got {self.campaigns} of {self.advertisers}")
        if self.canaries and not 0 <= self.canary_day < self.days:
            raise ValueError(f"expected canary_day in [0, {self.days}), got {self.canary_day}")
        if self.fine_share + self.coarse_share > 1:
            raise ValueError(f"expected fine_share + coarse_share <= 1, got {self.fine_share + self.coarse_share}")
        return self

    @property
    def num_leaves(self) -> int:
        """Leaves of the whole interest tree."""
        return self.departments * self.categories * self.leaves

    @property
    def first_micros(self) -> int:
        """The first midnight in microseconds since 1970."""
        return to_micros(self.start)

    @property
    def num_bots(self) -> int:
        """Users that are bots."""
        return round(self.users * self.bots)

    @property
    def slices(self) -> int:
        """Slices in which a day is made."""
        hostile = self.num_bots * self.bot_events * self.bot_days + self.canaries / self.days
        return max(1, round((self.events / self.days + hostile) / SLICE_ROWS))

    def midnight(self, day: int) -> int:
        """Microseconds of the midnight that begins day `day` (from 0) of the log."""
        return self.first_micros + day * MICROS_PER_DAY
