"""Every alarm goes off for what it is there for, and a run that sets one off publishes nothing."""

import pytest
import torch

from data.errors import StrataError
from hierarchy.alarms import level_health, require_alive, require_bounded, require_finite
from hierarchy.prototypes import Prototypes
from tests.hierarchy import small_learner as small


def test_primitives_that_were_never_placed_are_refused():
    with pytest.raises(StrataError, match="never placed"):
        require_alive(Prototypes((4,), 8, 1, 1), [])


def test_a_collapsed_level_is_refused():
    made = Prototypes((4,), 8, 1, 1)
    generator = torch.Generator().manual_seed(0)
    made.initialise(torch.nn.functional.normalize(torch.randn(40, 8, generator=generator), dim=1), 0)
    assert require_alive(made, [])[0]["duplicates"] == 0.0
    stuck = [{"distillation_1": 1.3862}] * 6
    with pytest.raises(StrataError, match="ln k"):
        require_alive(made, stuck)
    made.mass(0).copy_(torch.tensor([1.0, 0.0, 0.0, 0.0]))
    assert level_health(made)[0]["perplexity"] == pytest.approx(1.0)
    with pytest.raises(StrataError, match="dead"):
        require_alive(made, [])
    made.vectors(0)[1:3] = made.vectors(0)[0]
    with pytest.raises(StrataError, match="duplicates"):
        require_alive(made, [])


def test_nan_stops_the_run():
    with pytest.raises(StrataError, match="link is nan at step 7"):
        require_finite({"advertiser": 1.0, "link": float("nan")}, 7)


def test_blown_up_norms_refuse_to_publish(inputs):
    for change, said in (
        (lambda model: model.encoder.target_ids.data[1].fill_(90.0), "id residuals"),
        (lambda model: model.encoder.content.data.mul_(80.0), "content map"),
        (lambda model: model.link.log_scale.data.fill_(9.0), "times the cosine"),
        (lambda model: model.encoder.nowhere.data.fill_(float("nan")), "not finite"),
    ):
        trainer = small.prepared(inputs)
        require_bounded(trainer.teacher)
        change(trainer.teacher)
        with pytest.raises(StrataError, match=said):
            require_bounded(trainer.teacher)


def test_primitives_that_are_not_finite_are_refused():
    made = Prototypes((4,), 8, 1, 1)
    made.vectors(0).copy_(torch.eye(4, 8))
    require_alive(made, [])
    made.vectors(0)[2] = float("nan")
    with pytest.raises(StrataError, match="not finite"):
        require_alive(made, [])


@pytest.mark.parametrize(
    ("key", "changes", "said"),
    [
        ("blown", {"id_lr": 1e3}, "id residuals .* publish refused: lower id_lr"),
        (
            "stuck",
            {"distillation": {"seeds": 12, "queue": 64, "every": 1, "settle": 0, "teacher_temp": 50.0}},
            "stuck at ln k",
        ),
        ("nan", {"lr": 1e30, "log_every": 1}, "at step .*lower lr"),
    ],
)
def test_a_run_that_sets_off_an_alarm_publishes_nothing(root, inputs, key, changes, said):
    with pytest.raises(StrataError, match=said):
        small.trained(root, inputs, key, **changes)
    assert root.find("learner", key) is None


def test_reseeding_brings_the_dead_back():
    """What the alarm would refuse, the loop mends while it runs."""
    made = Prototypes((4,), 8, 1, 1)
    pool = torch.nn.functional.normalize(torch.randn(40, 8, generator=torch.Generator().manual_seed(1)), dim=1)
    made.initialise(pool, 0)
    made.mass(0).copy_(torch.tensor([1.0, 0.0, 0.0, 0.0]))
    with pytest.raises(StrataError, match="dead"):
        require_alive(made, [])
    assert made.reseed(pool, 0.1) == [3]
    assert require_alive(made, [])[0]["dead"] == 0
