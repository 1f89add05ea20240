"""What others published on the same splits, for the rows beside ours; the sources are in the notes of the project."""

from __future__ import annotations

Value = tuple[str, str, float]
"""Who and where, metric, value."""


def _both(who: str, k: int, recall: float, ndcg: float) -> list[Value]:
    return [(who, f"recall@{k}", recall), (who, f"ndcg@{k}", ndcg)]


_MASK = "whether seen items are masked is not known"
PUBLISHED: dict[str, list[Value]] = {
    "gowalla": [
        *_both("LightGCN (published, BARS re-run)", 20, 0.1820, 0.1547),
        *_both("GF-CF (published)", 20, 0.1849, 0.1518),
        *_both("EASE^R (published, BARS)", 20, 0.1765, 0.1467),
        *_both("ItemCF (published, BARS)", 20, 0.1570, 0.1214),
        *_both("BSPM-EM (published)", 20, 0.1920, 0.1597),
        *_both("ChebyCF (published)", 20, 0.1941, 0.1616),
    ],
    "amazon-beauty": _both(f"SASRec + sampled softmax (published; {_MASK})", 10, 0.0921, 0.0531),
    "amazon-sports": _both(f"SASRec + sampled softmax (published; {_MASK})", 10, 0.0569, 0.0314),
    "amazon-toys": _both(f"SASRec + sampled softmax (published; {_MASK})", 10, 0.0970, 0.0580),
    "amazon-instruments": _both(f"LETTER-TIGER (published; {_MASK})", 10, 0.1122, 0.0831),
    "retailrocket": [
        ("KG-Mber (published; bought items masked, taken from its code)", f"recall@{k}", value)
        for k, value in ((10, 0.0915), (20, 0.1081), (40, 0.1362))
    ],
}
"""Published values by set."""
