from __future__ import annotations

from pathlib import Path

import numpy as np

from data.schema import to_micros
from ranking.delayed import delayed_labels
from ranking.reader import Examples
from tests.ranking.shops import DAY, T0, event, make_examples, shop_of

_START = to_micros(T0)


def _examples(store: Path) -> Examples:
    events = []
    for number, again in enumerate((3, 20, None)):
        for kind in ("impression", "purchase"):
            events.append(event(kind, "u-0", f"p-{number}", _START, "r-0"))
        if again is not None:
            events.append(
                event("purchase", "u-0", f"p-{number}", _START + again * DAY, known_at=_START + (again + 1) * DAY)
            )
    events.append(event("impression", "u-0", "p-3", _START, "r-0"))
    return Examples.open(make_examples(shop_of(events, []), store))


def test_a_delayed_label_counts_only_when_its_window_has_passed_before_the_cut(tmp_path: Path) -> None:
    examples = _examples(tmp_path)
    early = delayed_labels(examples, _START + 28 * DAY - 1)
    assert not early.known.any(), "a repurchase after 3 days must not count before non-repurchases can"
    assert not early.label.any()
    mature = delayed_labels(examples, _START + 28 * DAY)
    assert mature.known.tolist() == [True, True, True, False]
    assert mature.label.tolist() == [1.0, 1.0, 0.0, 0.0]
    assert mature.label.dtype == np.float32


def test_a_repurchase_not_yet_readable_at_the_cut_is_not_used(tmp_path: Path) -> None:
    late = event("purchase", "u-0", "p-0", _START + 27 * DAY, known_at=_START + 40 * DAY)
    events = [event(kind, "u-0", "p-0", _START, "r-0") for kind in ("impression", "purchase")]
    examples = Examples.open(make_examples(shop_of([*events, late], []), tmp_path))
    assert delayed_labels(examples, _START + 39 * DAY).label.tolist() == [0.0]
    assert delayed_labels(examples, _START + 40 * DAY).label.tolist() == [1.0]
