import numpy as np
import pytest

from encoders.batches import Tokens, group_by_length

LENGTHS = np.array([3, 9, 3, 8, 9, 1, 3, 8, 9, 3])


def shapes(groups):
    return [(len(group), int(LENGTHS[group].max())) for group in groups]


@pytest.mark.parametrize("padding", [0.0, 0.04, 0.3])
@pytest.mark.parametrize("batch_tokens", [1, 18, 30, 1000])
def test_groups_cover_every_text_once_within_both_limits(batch_tokens, padding):
    groups = group_by_length(LENGTHS, batch_tokens, padding)
    assert sorted(np.concatenate(groups).tolist()) == list(range(10))
    for group in groups:
        total = len(group) * LENGTHS[group].max()
        assert len(group) == 1 or total <= batch_tokens
        assert 1 - LENGTHS[group].sum() / total <= padding


def test_groups_are_filled_as_far_as_the_limits_allow():
    assert shapes(group_by_length(LENGTHS, 18, 0.0)) == [(2, 9), (1, 9), (2, 8), (4, 3), (1, 1)]
    assert shapes(group_by_length(LENGTHS, 45, 0.05)) == [(5, 9), (4, 3), (1, 1)]
    assert group_by_length(LENGTHS, 18, 0.0)[0].tolist() == [1, 4]
    assert group_by_length(np.zeros(0, np.int64), 18, 0.0) == []


def test_a_batch_holds_its_texts_and_padding_behind_them():
    tokens = Tokens(np.array([5, 6, 7, 8, 9, 4], np.int32), np.array([0, 2, 5, 6]))
    batch = tokens.batch(np.array([1, 2, 0]), padding=99)
    assert batch.ids.tolist() == [[7, 8, 9], [4, 99, 99], [5, 6, 99]]
    assert batch.lengths.tolist() == [3, 1, 2]
