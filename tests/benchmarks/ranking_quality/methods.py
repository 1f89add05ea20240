"""The models by name, the settings tried for each, and how one is fitted.

A name is a model, or model-arm: `ranker` reads the learned tokens, `ranker-no_tokens` hashed ones, `ranker-level_1` one
level alone; other models read no tokens unless asked, such as `din-tokens`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from data.errors import UsageError, nearest
from ranking.arms import BASELINE, bags_of
from ranking.baselines.base_rate import fit_base_rate
from ranking.baselines.gradient_boosting import Trees, fit_gradient_boosting
from ranking.baselines.logistic_regression import fit_logistic_regression
from ranking.baselines.popularity_by_surface import fit_popularity
from ranking.models import NETWORKS, Fit, Predictor, Setup, batcher_of, fit_network_of, levels_of

Setting = dict[str, Any]
Space = Mapping[str, Sequence[Any]]

_SCHEDULE: Space = {
    "lr": (4e-3, 1e-3, 2e-3, 8e-3),
    "table_lr": (4e-3, 1e-3, 1e-2, 2e-2),
    "weight_decay": (1.0, 0.1, 3.0),
    "epochs": (1, 2, 3),
    "batch_rows": (256, 128, 512),
    "averaging": (0.99, 0.97),
    "deep_weight": (0.2, 0.0),
}
"""How networks are trained: the same choices for all of them, the stage's defaults first."""
_SIZE: Space = {
    "width": (32, 16, 64),
    "num_blocks": (2, 1, 3),
    "dropout": (0.1, 0.0, 0.3),
    "history_len": (50, 20, 100),
    # Two buckets are one row for all users: a small log teaches user ids by heart and little else.
    "user_buckets": (4_096, 2),
}
_HEADS: Space = {"num_heads": (2, 4, 1)}
SPACES: Mapping[str, Space] = {
    "base_rate": {},
    "popularity_by_surface": {"strength": (1e3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 3e3, 1e4, 3e4, 1e5)},
    "logistic_regression": {
        "strength": (0.1, 0.003, 0.01, 0.03, 0.3, 1.0, 3.0),
        "buckets": (1 << 18, 1 << 16, 1 << 20),
    },
    "gradient_boosting": {
        "learning_rate": (0.05, 0.02, 0.1),
        "num_leaves": (31, 7, 15, 63, 127),
        "min_data_in_leaf": (50, 20, 100, 300),
        "feature_fraction": (0.7, 0.4, 1.0),
        "bagging_fraction": (0.8, 0.6, 1.0),
        "lambda_l2": (1.0, 0.0, 10.0, 100.0),
        "cat_smooth": (50.0, 10.0, 200.0),
        "history_len": (50, 20, 100),
    },
    "dcnv2": {**_SIZE, **_SCHEDULE},
    "din": {**_SIZE, **_SCHEDULE},
    "hstu": {**_SIZE, **_HEADS, **_SCHEDULE},
    "ranker": {**_SIZE, **_HEADS, **_SCHEDULE},
}
_NO_ARMS = ("base_rate", "popularity_by_surface")


@dataclass(frozen=True)
class Method:
    """A model in one arm."""

    name: str
    model: str
    arm: str

    @classmethod
    def named(cls, name: str, setup: Setup) -> Method:
        """Raises UsageError for an unknown model or arm."""
        model, _, arm = name.partition("-")
        if model not in SPACES:
            raise UsageError(f"no model {model!r}: {nearest(model, SPACES)}")
        arm = arm or ("tokens" if model == "ranker" else BASELINE)
        if model in _NO_ARMS and arm != BASELINE:
            raise UsageError(f"expected {model} without an arm, got {name!r}: it reads no interest tokens")
        bags_of(setup.examples, arm)
        return cls(name, model, arm)

    @property
    def space(self) -> Space:
        """Values of each setting, its default first."""
        return SPACES[self.model]

    @property
    def seeded(self) -> bool:
        """Whether fits differ from seed to seed."""
        return self.model in NETWORKS or self.model == "gradient_boosting"

    def fit(self, setup: Setup, setting: Setting, seed: int) -> Predictor:
        """Fit on the training rows of `setup`; all models get the same ones."""
        examples, sample = setup.examples, setup.sample
        if self.model == "base_rate":
            return fit_base_rate(examples, sample)
        if self.model == "popularity_by_surface":
            return fit_popularity(examples, sample, (setting["strength"],))
        if self.model == "logistic_regression":
            bags = None if self.arm == BASELINE else bags_of(examples, self.arm)
            return fit_logistic_regression(examples, sample, (setting["strength"],), setting["buckets"], bags)
        architecture, schedule = _changed(setup.architecture, setting), _changed(setup.schedule, setting)
        sized = replace(setup, architecture=architecture, schedule=schedule)
        if self.model == "gradient_boosting":
            levels, trees = levels_of(sized, self.arm), _changed(Trees(), setting)
            return fit_gradient_boosting(batcher_of(sized, self.arm), sample, levels, trees, seed)
        return fit_network_of(sized, Fit(self.model, self.arm, seed), seed)


def _changed(config: Any, setting: Setting) -> Any:
    """`config` with those fields of `setting` that it has; all its others stay."""
    fields = type(config).model_fields
    own = {name: value for name, value in setting.items() if name in fields}
    return type(config)(**{**config.model_dump(), **own})
