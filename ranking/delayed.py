"""What a conversion that may come late teaches, as far as it is known when training ends.

A row has a label, a weight, and the share of its conversions that can be known by its age; `ranking.heads.delayed_loss`
says what they mean. The strategies differ in these three only, so that any network trains with any of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from data.schema import MICROS_PER_DAY
from ranking.delay_law import DelayLaw, Floats, Ints, estimate_law
from ranking.histories import encode_ids
from ranking.reader import Examples

NEVER = int(np.iinfo(np.int64).max)
"""`reported` of a row that has no conversion."""

MIN_SHARE = 0.02
"""Rows of which a smaller part of the conversions can be known say too little and are left out; labels stay <= 50."""

_STEPS = 6
"""Values of `law_step`."""

Strategy = Literal["naive", "waiting", "importance", "likelihood"]
"""What a ranker may be trained with; `oracle` is no choice of a config, as nobody can know its labels at the cut."""


@dataclass(frozen=True)
class Clicks:
    """Rows that may convert: `ts` [us], `reported` [us] when the conversion became known (or NEVER), and `group` >= 0
    of rows that share a delay law, each int64 (n,); conversions count up to `window` [us] after `ts`."""

    ts: Ints
    reported: Ints
    group: Ints
    window: int

    def observed(self, cut: int) -> NDArray[np.bool_]:
        """Whether the row was there before the cut and its conversion known at it."""
        observed: NDArray[np.bool_] = (self.ts < cut) & (self.reported <= cut)
        return observed


@dataclass(frozen=True)
class Delayed:
    """`label`, `weight` and `share`, float32 (n,): label and weight are 0 where a row teaches nothing; `share` is 1 but
    for strategies that model what is not known yet."""

    label: NDArray[np.float32]
    weight: NDArray[np.float32]
    share: NDArray[np.float32]

    @classmethod
    def of(cls, label: NDArray, weight: NDArray, share: NDArray | None = None) -> Delayed:
        """With label 0 and share 1 where the weight is 0."""
        known, part = weight > 0, np.ones(len(weight)) if share is None else share
        made = np.where(known, label, 0.0), weight, np.where(known, part, 1.0)
        return cls(*(column.astype(np.float32) for column in made))

    @property
    def known(self) -> NDArray[np.bool_]:
        """Whether a row counts."""
        known: NDArray[np.bool_] = self.weight > 0
        return known


def naive(clicks: Clicks, cut: int) -> Delayed:
    """What has not converted by the cut counts as a negative: too few positives among the young."""
    return Delayed.of(clicks.observed(cut), clicks.ts < cut)


def waiting(clicks: Clicks, cut: int) -> Delayed:
    """Only rows whose whole window has passed count: right, but blind to the latest window.

    Taking early conversions before their window has passed would over-count positives among the youngest rows.
    """
    return Delayed.of(clicks.observed(cut), (clicks.ts < cut) & (clicks.ts <= cut - clicks.window))


def importance(clicks: Clicks, cut: int) -> Delayed:
    """All rows, `corrected` for the conversions still to come by the delay law known at the cut."""
    share = known_share(clicks, cut)
    return waiting(clicks, cut) if share is None else corrected(clicks, cut, share)


def likelihood(clicks: Clicks, cut: int) -> Delayed:
    """All rows, as `censored` observations under the delay law known at the cut."""
    share = known_share(clicks, cut)
    return waiting(clicks, cut) if share is None else censored(clicks, cut, share)


def known_share(clicks: Clicks, cut: int) -> Floats | None:
    """F(age at the cut | group) of each row (n,), or None when no conversion of a row as old as the window is known:
    the end of the law is then anyone's guess, and strategies that need it wait."""
    if not (clicks.observed(cut) & (clicks.ts <= cut - clicks.window)).any():
        return None
    return law_at(clicks, cut).known_by(cut - clicks.ts, clicks.group)


def law_at(clicks: Clicks, cut: int) -> DelayLaw:
    """The law of each group by the conversions known at the cut; counts halve with every half window of age.

    One more group, the last, stands for those that come later and has the law of all.
    """
    known = np.flatnonzero(clicks.observed(cut))
    ts, groups = clicks.ts[known], int(clicks.group.max(initial=0)) + 2
    return estimate_law(clicks.reported[known] - ts, cut - ts, clicks.group[known], groups, half_life=clicks.window / 2)


def corrected(clicks: Clicks, cut: int, share: Floats) -> Delayed:
    """Label observed / F and weight F, for `share` (n,) = F(age at the cut | row), the part of conversions known.

    As E[observed | final label y] = y F, the row's loss has mean F * (softplus(logit) - y logit): the oracle's loss,
    unbiased, with rows weighted by how much they tell. This is the estimator of Saito et al. (SIGIR 2020), whose
    positives count 1/F and are taken back from the negatives, times F: the gradient F sigmoid(logit) - observed
    stays within [-1, 1] however young the row, and for rare conversions, where observed / F has a variance of about
    p / F, these are the weights of least variance. Rows with F < MIN_SHARE get weight 0, whatever their label.
    Labels above 1 ask for F to be right: where it is too small and conversions are frequent, a group of rows has a
    mean label above 1, and its logit has no bound.
    """
    weight = np.where((clicks.ts < cut) & (share >= MIN_SHARE), share, 0.0)
    return Delayed.of(clicks.observed(cut) / np.maximum(share, MIN_SHARE), weight)


def censored(clicks: Clicks, cut: int, share: Floats) -> Delayed:
    """Label observed, weight 1 and share F, for `share` (n,) as in `corrected`.

    The loss is -log of the probability of what was observed: p F of a conversion that is known, 1 - p F of none yet
    (Chapelle, KDD 2014, with the law of `estimate_law` in place of his exponential). Its minimum is at the true p when
    F is right, no unbiased estimate varies less in large samples, and it keeps p below 1 when F is wrong.
    """
    return Delayed.of(clicks.observed(cut), clicks.ts < cut, share)


def oracle(clicks: Clicks, cut: int) -> Delayed:
    """Final labels, also of conversions after the cut: what no training can know; to compare with, never to publish."""
    return Delayed.of(clicks.reported < NEVER, clicks.ts < cut)


STRATEGIES: dict[str, Callable[[Clicks, int], Delayed]] = {
    "naive": naive,
    "waiting": waiting,
    "importance": importance,
    "likelihood": likelihood,
}
"""Strategies by their name in a config."""


def delayed_labels(examples: Examples, cut: int, strategy: Strategy = "waiting") -> Delayed:
    """'Bought again within the window' of all rows as a reader at time `cut` [us] could know it.

    Only rows bought on the visit count. Those of one top category and of about as many earlier events of the pair
    share a delay law: who has bought a thing often comes back sooner (rows "delayed labels, repurchases" of
    results/ranking.csv, beside "one law").
    """
    bought = np.flatnonzero(examples.columns["label"])
    part = STRATEGIES[strategy](_clicks(examples, bought), cut)
    label, weight = np.zeros((2, len(examples)), np.float32)
    share = np.ones(len(examples), np.float32)
    label[bought], weight[bought], share[bought] = part.label, part.weight, part.share
    return Delayed(label, weight, share)


def law_step(earlier: NDArray) -> Ints:
    """0 to 5, by the count of earlier events of the pair (n,): none, 1-2, 3-6, 7-14, 15-30, more."""
    step: Ints = np.minimum(np.log2(earlier + 1.0), _STEPS - 1).astype(np.int64)
    return step


def _clicks(examples: Examples, rows: Ints) -> Clicks:
    table = examples.ref.table("conversions.parquet")
    ids = examples.ref.table("ids.parquet")["event_id"].combine_chunks().take(rows)
    again = encode_ids(ids, table["event_id"].combine_chunks())
    reported = np.append(table["known_at"].to_numpy(), NEVER)[again]
    top = examples.hashes["category"][examples.columns["product"][rows], 0]
    often = law_step(np.asarray(examples.columns["pair_events"][rows]))
    group = np.unique(top, return_inverse=True)[1] * _STEPS + often
    return Clicks(np.asarray(examples.columns["ts"][rows]), reported, group, examples.deep_days * MICROS_PER_DAY)
