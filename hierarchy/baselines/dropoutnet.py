"""DropoutNet: towers that rebuild preference from what is left of it, so that content alone can stand in for it.

Volkovs, Yu & Poutanen (2017), "DropoutNet: Addressing Cold Start in Recommender Systems", NIPS. Given vectors U and V
of a model that knows preference only, towers f and g are fitted to f(user) . g(V_i, content_i) = U_u . V_i while V_i is
put to zero with a probability; a product without events is then a case that training has seen. Users have no content of
their own here: their input is the mean preference vector and the mean content of their history, so that they never are
cold, and are inductive.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import nn

from data.errors import UsageError
from hierarchy.baselines.fitting import Limits, Trained, Validate, Vectors, completed, require_events, seeded, train
from hierarchy.baselines.pairs import Pairs
from hierarchy.purchases import History

DEFAULTS: dict[str, Any] = {
    "dims": 128,
    "hidden": (256,),
    "dropped": 0.5,
    "lr": 1e-3,
    "weight_decay": 0.0,
    "users": 256,
    "products": 1024,
}
"""What a setting that leaves something out gets.

`hidden`: widths of the inner layers of both towers. `dropped`: share of products whose preference is put to zero. A
step rebuilds the products of a batch of `users`: one that each had, and random ones up to `products`.
"""

SPACE: dict[str, list[Any]] = {
    "dims": [64, 128, 256],
    "hidden": [(), (256,), (512,), (512, 256)],
    "dropped": [0.3, 0.5, 0.7, 0.9],
    "lr": [3e-4, 1e-3, 3e-3],
    "weight_decay": [0.0, 1e-4, 1e-2],
    "users": [128, 256, 512],
}
"""What tuning draws from."""


class DropoutNet(nn.Module):
    """Two towers of linear layers, batch normalisation and tanh, the last layer linear as in the paper."""

    def __init__(self, width: int, setting: Mapping[str, Any]) -> None:
        super().__init__()
        self.user, self.product = (_tower(width, setting["hidden"], setting["dims"]) for _ in range(2))

    @torch.no_grad()
    def vectors(self, users: torch.Tensor, products: torch.Tensor) -> Vectors:
        """Vectors of users (U, width) and products (P, width)."""
        self.eval()
        return Vectors(self.user(users), self.product(products))


class Inputs:
    """What the towers see of a history: preference and content side by side, each at a mean square of one."""

    def __init__(self, known: History, preference: NDArray[np.float32], content: NDArray[np.float32]) -> None:
        warm = known.popularity() > 0
        self.preference_dims = preference.shape[1]
        scaled = _scaled(np.where(warm[:, None], preference, np.float32(0)), warm)
        self.products = np.concatenate([scaled, _scaled(content, np.any(content, axis=1))], axis=1)
        self.warm = np.flatnonzero(warm)

    def users(self, history: History) -> NDArray[np.float32]:
        """Mean input of the products of each user's history (users, width), zero for a user without one."""
        had = history.matrix()
        share = 1 / np.maximum(np.asarray(had.sum(axis=1)).ravel(), 1e-12)
        return np.asarray(sparse.diags_array(share) @ had @ self.products, np.float32)


def fit(
    known: History,
    preferences: tuple[NDArray[np.float32], NDArray[np.float32]],
    content: NDArray[np.float32],
    setting: Mapping[str, Any],
    seed: int = 0,
    device: str = "cpu",
    limits: Limits | None = None,
    validate: Validate | None = None,
) -> Trained:
    """DropoutNet of `known`; products without an event in it are scored from content. `grown` takes later histories.

    preferences: float32 (users, D) and (products, D), whose dot products are rebuilt; rows of products without events
    are not looked at. content: float32 (products, C), zero where nothing is known. An epoch sees as many users as have
    events. Memory: (users + products) x (D + C) floats. Raises UsageError for shapes that do not fit `known`, a history
    without events, and an unknown key of `setting`.
    """
    require_events(known, "DropoutNet")
    _check(known, preferences, content)
    chosen, limits, where = completed(setting, DEFAULTS), limits or Limits(epochs=30), torch.device(device)
    inputs = Inputs(known, preferences[1], content)
    users, products = (torch.from_numpy(x).to(where) for x in (inputs.users(known), inputs.products))
    with seeded(seed, where):
        model = DropoutNet(products.shape[1], chosen).to(where)
        target = _Target(preferences, torch.from_numpy(inputs.warm).to(where), where)
        pairs = Pairs(known, where, by_user=True)
        epoch = _stepper(model, (users, products, inputs.preference_dims), target, pairs, chosen)
        course = train(model, epoch, lambda: model.vectors(users, products), limits, validate)

    def grow(later: History) -> Vectors:
        return model.vectors(torch.from_numpy(inputs.users(later)).to(where), products)

    return Trained(model.vectors(users, products), grow, course)


class _Target:
    """Dot products to rebuild, at a mean square of one over random pairs, so that a learning rate fits any input."""

    def __init__(
        self, preferences: tuple[NDArray[np.float32], NDArray[np.float32]], warm: torch.Tensor, device: torch.device
    ) -> None:
        self.warm = warm
        self._users, self._products = (torch.from_numpy(np.ascontiguousarray(x)).to(device) for x in preferences)
        some = self._users[torch.randint(len(self._users), (1024,), device=device)] @ self._products[self.some(1024)].T
        self._users = self._users / some.square().mean().sqrt().clamp_min(1e-12)

    def some(self, count: int) -> torch.Tensor:
        """Random products with events (count,)."""
        return self.warm[torch.randint(len(self.warm), (count,), device=self.warm.device)]

    def of(self, users: torch.Tensor, products: torch.Tensor) -> torch.Tensor:
        return self._users[users] @ self._products[products].T


def _stepper(
    model: DropoutNet,
    inputs: tuple[torch.Tensor, torch.Tensor, int],
    target: _Target,
    pairs: Pairs,
    setting: Mapping[str, Any],
) -> Any:
    users, products, preference_dims = inputs
    optimiser = torch.optim.AdamW(model.parameters(), lr=setting["lr"], weight_decay=setting["weight_decay"])

    def epoch() -> Iterator[torch.Tensor]:
        for _ in range(math.ceil(pairs.num_active / setting["users"])):
            who, liked = pairs.draw(setting["users"])
            which = torch.cat([liked, target.some(max(setting["products"] - len(liked), 0))])
            seen = dropped(products[which], preference_dims, setting["dropped"])
            loss = (model.user(users[who]) @ model.product(seen).T - target.of(who, which)).square().mean()
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            yield loss

    return epoch


def dropped(products: torch.Tensor, preference_dims: int, share: float) -> torch.Tensor:
    """Inputs (n, width), the first `preference_dims` columns put to zero in a random `share` of the rows."""
    kept = torch.rand(len(products), 1, device=products.device) >= share
    return torch.cat([products[:, :preference_dims] * kept, products[:, preference_dims:]], dim=1)


def _tower(width: int, hidden: tuple[int, ...], dims: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inner in hidden:
        layers += [nn.Linear(width, inner), nn.BatchNorm1d(inner), nn.Tanh()]
        width = inner
    return nn.Sequential(*layers, nn.Linear(width, dims))


def _scaled(table: NDArray[np.float32], rows: NDArray[np.bool_]) -> NDArray[np.float32]:
    """`table` over the root mean square of `rows`."""
    square = np.square(table[rows], dtype=np.float64)
    return np.asarray(table / max(math.sqrt(square.mean()) if square.size else 0.0, 1e-12), np.float32)


def _check(
    known: History, preferences: tuple[NDArray[np.float32], NDArray[np.float32]], content: NDArray[np.float32]
) -> None:
    users, products = preferences
    if len(users) != known.num_users or len(products) != known.num_products or users.shape[1] != products.shape[1]:
        raise UsageError(
            f"DropoutNet expects preferences ({known.num_users}, D) and ({known.num_products}, D), not {users.shape} "
            f"and {products.shape}: fit them on the same history"
        )
    if len(content) != known.num_products:
        raise UsageError(f"DropoutNet expects content of {known.num_products} products, not of {len(content)}")
