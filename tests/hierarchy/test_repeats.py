"""What a user had before: shares of a history, and what the link head makes of them."""

import numpy as np
import torch
from scipy import sparse

from hierarchy.evaluate import Learned
from hierarchy.model import LinkHead
from hierarchy.repeats import history_share


def test_share_counts_each_candidate_in_the_history() -> None:
    generator = torch.Generator().manual_seed(0)
    history = torch.randint(0, 9, (7, 12), generator=generator)
    mask = torch.rand(history.shape, generator=generator) < 0.6
    mask[0] = False
    candidates = torch.tensor([4, 20, 0, 4, 8, -1])
    expected = torch.tensor(
        [
            [
                sum(int(t) == int(c) for t, m in zip(row, there, strict=True) if m) / max(1, int(there.sum()))
                for c in candidates
            ]
            for row, there in zip(history, mask, strict=True)
        ]
    )
    torch.testing.assert_close(history_share(history, mask, candidates), expected)


def test_repeats_are_learned_in_either_direction() -> None:
    users, products = torch.zeros(2, 1, 4), torch.zeros(3, 4)
    share = torch.tensor([[0.5, 0.0, 0.25], [0.0, 1.0, 0.0]])
    for sign in (1.0, -1.0):
        link = LinkHead(0.1)
        wanted = share > 0 if sign > 0 else share == 0
        optimizer = torch.optim.Adam(link.parameters(), lr=0.1)
        for _ in range(60):
            log_prob = torch.log_softmax(link(users, products, torch.zeros(3), share), dim=1)
            loss = -(log_prob * wanted).sum() / wanted.sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        assert sign * float(link.repeat[0].detach()) > 1.0


def test_level_and_slope_of_repeats_do_not_pull_against_each_other() -> None:
    # Of shares around the typical one, more is better: the slope must come out positive from the first steps on.
    link, share = LinkHead(0.1), torch.tensor([[0.01, 0.08, 0.0]])
    optimizer = torch.optim.Adam(link.parameters(), lr=0.02)
    for _ in range(20):
        loss = -torch.log_softmax(link(torch.zeros(1, 1, 4), torch.zeros(3, 4), torch.zeros(3), share), dim=1)[0, 1]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert link.repeat.detach().min() > 0.1


def test_the_scorer_adds_what_the_head_adds() -> None:
    rng = np.random.default_rng(0)
    users, products = rng.standard_normal((4, 1, 3)).astype(np.float32), rng.standard_normal((5, 3)).astype(np.float32)
    history = sparse.csr_array(
        np.array([[2, 0, 1, 0, 0], [0, 0, 0, 0, 0], [0, 1, 0, 0, 0], [1, 1, 1, 1, 0]], np.float32)
    )
    link = LinkHead(1.0)
    with torch.no_grad():
        link.repeat.copy_(torch.tensor([0.7, 0.3]))
        link.popularity.fill_(0.0)
    share = torch.from_numpy(history.toarray() / np.maximum(history.toarray().sum(axis=1, keepdims=True), 1))
    expected = link(torch.from_numpy(users), torch.from_numpy(products), torch.zeros(5), share.float()).detach().numpy()
    found = Learned(users, products, np.zeros(5, np.float32), history, link.repeats_in_cosine()).scores(np.arange(4))
    np.testing.assert_allclose(found, expected, atol=1e-5)
