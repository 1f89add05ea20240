"""The fields that explicit crosses see, one row at a time by hand."""

import pytest
import torch

from ranking.batch import Batcher, Buckets, learned_bags
from ranking.reader import TRAIN, Examples
from ranking.wide import Wide

BUCKETS = Buckets(user=64, product=64, advertiser=16, category=16, surface=8)
HISTORY = 6


def test_fields_are_those_of_a_loop_over_rows_and_their_history(examples_ref):
    examples = Examples.open(examples_ref)
    batch = Batcher(examples, learned_bags(examples), BUCKETS, HISTORY).batch(examples.rows(TRAIN)[::5])
    torch.manual_seed(0)
    wide = Wide(BUCKETS, examples.content.shape[1], 4)
    tables, found = wide.tables, wide(batch)
    assert found.shape == (len(batch.label), wide.size)

    def parts(item):
        category = sum(
            (tables["category"].weight[row] for row in batch.item_category[item].tolist() if row), torch.zeros(4)
        )
        ids = (
            tables["product"].weight[batch.item_product[item]],
            tables["advertiser"].weight[batch.item_advertiser[item]],
        )
        return [*ids, category, wide.content(batch.item_content[item])]

    lengths = batch.history.lengths
    assert lengths.unique().numel() > 1, "the mean must be over different numbers of events"
    for row in range(len(batch.label)):
        visit = int(batch.visit[row])
        first, last = batch.history.offsets[visit], batch.history.offsets[visit + 1]
        events = [sum(parts(int(item))) for item in batch.history.values[first:last]]
        mean = sum(events) / len(events) if events else torch.zeros(4)
        wanted = [
            *parts(int(batch.candidate[row])),
            tables["user"].weight[batch.user[visit]],
            mean,
            tables["surface"].weight[batch.surface[row]],
            tables["hour"].weight[batch.hour[row]],
            tables["weekday"].weight[batch.weekday[row]],
        ]
        assert found[row].tolist() == pytest.approx(torch.cat(wanted).tolist(), abs=1e-5)
