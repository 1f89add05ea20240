"""A step asks nothing of its device: on torch's `meta` device, which has no values, any such question raises, and so
does a tensor that was left on the CPU."""

import dataclasses
from contextlib import contextmanager

import pytest
import torch
from torch.utils._pytree import tree_leaves

from data.context import RunContext
from data.errors import SystemStateError
from hierarchy import train
from hierarchy.inference import FrozenLearner
from hierarchy.objective import Teacher, distil, link_losses
from hierarchy.passes import allow_tf32
from hierarchy.teacher import follow
from hierarchy.transfer import on_device
from kernels.captured import Captured
from tests.hierarchy import small_learner as small
from tests.hierarchy.planted_tastes import DEVICES


@contextmanager
def nothing_written_from_the_host():
    """Raises where a number of the host's is written to places of a device, which has to be waited for."""
    write = torch.Tensor.__setitem__

    def checked(tensor, index, value):
        there = isinstance(value, torch.Tensor) and value.device == tensor.device
        if not there and any(isinstance(part, torch.Tensor) for part in tree_leaves(index)):
            raise AssertionError(f"{value} is written from the host")
        write(tensor, index, value)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "__setitem__", checked)
        yield


def _moved(value):
    if isinstance(value, torch.Tensor):
        return value.to("meta")
    if dataclasses.is_dataclass(value):
        fields = {field.name: _moved(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return dataclasses.replace(value, **fields)
    return tuple(map(_moved, value)) if isinstance(value, tuple) else value


@pytest.mark.parametrize("value", [-1.0, torch.ones(())])
def test_a_value_from_the_host_is_noticed(value):
    device = torch.zeros(3, 4, device="meta")
    places = torch.zeros(2, dtype=torch.int64, device="meta"), torch.ones(2, dtype=torch.int64, device="meta")
    with nothing_written_from_the_host(), pytest.raises(AssertionError, match="from the host"):
        device[places] = value
    with nothing_written_from_the_host():
        device.index_put_(places, device.new_full((), -1.0))


@pytest.fixture
def started(inputs, monkeypatch):
    """A trainer with primitives, all of whose tensors are on `meta`, and the input of a step."""
    changes = {"mask_known": True, "hard_negatives": 2, "id_dropout": 0.2, "token_dropout": 0.2}
    trainer = small.prepared(inputs, **changes)
    trainer._give_birth()
    trainer._mine()
    given = trainer.draw(5)
    for module in trainer._modules().values():
        module.to("meta")
    batches, hard = trainer.batches, trainer.miner.hard
    for name, value in vars(hard).items():
        setattr(hard, name, _moved(value))
    batches._share = {kind: _moved(share) for kind, share in batches._share.items()}
    batches.engaged._sorted = _moved(batches.engaged._sorted)
    trainer.prototypes._there = lambda: True
    real = batches.candidates
    monkeypatch.setattr(
        batches,
        "candidates",
        lambda kind, nodes, *rest: _moved(real(kind, torch.zeros(nodes.shape, dtype=torch.int64), *rest)),
    )
    return trainer, given


def test_a_step_asks_nothing_of_its_device(started):
    trainer, given = started
    config, given = trainer.config, _moved(given)
    passes = trainer.passes(trainer.prototypes)
    products = torch.zeros(trainer.visible["product"], 3, device="meta")
    taught = config.teaching.model_copy(update={"views": ("spectral",)})
    with nothing_written_from_the_host():
        mined = trainer.miner.extended(given, 5, config.negatives)
        assert len(mined.products.nodes) == config.batch_size * 3 + config.negatives
        terms = link_losses(
            trainer.student,
            passes,
            mined,
            config.weights,
            trainer.miner.absent(mined),
            taught,
            [Teacher(products, products)],
        )
        for view in config.distillation.views:
            more, distilled = distil(
                config.distillation,
                config.weights,
                trainer.student,
                trainer.teacher,
                trainer.prototypes,
                trainer.memory,
                passes,
                given,
                view,
            )
    terms |= more
    assert {"link", "advertiser", "teachers", "distillation", "consistency"} <= set(terms)
    assert {term.device.type for term in terms.values()} == {"meta"}
    torch.stack(list(terms.values())).sum().backward()
    torch.nn.utils.clip_grad_norm_(trainer.student.parameters(), 1.0)
    follow(trainer.teacher, trainer.student, 0.9)
    trainer.prototypes.update(distilled.vectors, distilled.targets, 0.9, 0.1)
    trainer.memory.push(distilled.vectors)


def test_the_check_notices_a_question_and_a_tensor_left_behind(started):
    trainer, given = started
    moved = _moved(given)
    weights = trainer.config.weights
    with pytest.raises(Exception, match=r"[Mm]eta"):
        float(link_losses(trainer.student, trainer.passes(), moved, weights)["link"])
    with pytest.raises(Exception, match=r"[Mm]eta|device"):
        link_losses(trainer.student, trainer.passes(), dataclasses.replace(moved, users=given.users), weights)


def test_a_gpu_that_is_not_there_is_said_to_be_missing(inputs, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemStateError, match="torch finds none"):
        train.prepare(train.Config(**small.CONFIG), inputs, RunContext(threads=1, device="cuda"))


def test_a_checkpoint_and_an_artifact_name_no_device(root, inputs):
    frozen = FrozenLearner.open(small.trained(root, inputs, steps=4, warmup_steps=2), "cpu")
    assert frozen.device.type == "cpu"


def test_bfloat16_trains_to_about_the_same_losses(root, inputs):
    full, half = (small.trained(root, inputs, f"in_{precision}", precision=precision) for precision in ("tf32", "bf16"))
    one, other = full.metrics["last"]["link"], half.metrics["last"]["link"]
    assert one != other
    assert other == pytest.approx(one, rel=0.05)


def test_rounding_of_products_is_as_before_after_training():
    before = torch.get_float32_matmul_precision()
    for precision, expected in (("tf32", "high"), ("bf16", "high"), ("fp32", "highest")):
        with allow_tf32(precision):
            assert torch.get_float32_matmul_precision() == expected
    assert torch.get_float32_matmul_precision() == before


def test_host_arrays_reach_the_device_as_they_are():
    array = torch.arange(6).numpy()[::2]
    assert on_device(array, "cpu").tolist() == [0, 2, 4]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_step_on_a_gpu_has_the_losses_of_the_cpu(inputs):
    """Draws are equal; sums are made in another order."""
    losses = []
    for device in ("cpu", "cuda"):
        config = train.Config(**{**small.CONFIG, "id_dropout": 0.0})
        trainer, _ = train.prepare(config, inputs, RunContext(threads=1, device=device))
        terms = [trainer.step(step, trainer.draw(step)) for step in range(6)]
        losses.append([float(row["link"]) for row in terms])
    assert losses[0] == pytest.approx(losses[1], rel=0.02)


class Compared:
    """Calls a step the plain way and then as it is recorded, with one seed, and holds the answers together."""

    def __init__(self, learn, device):
        self.plain, self.recorded, self.equal = learn, Captured(learn, device), 0

    def __call__(self, *given):
        torch.manual_seed(7)
        terms, _, gradients = self.plain(*given)
        wanted = [value.clone() for value in (*terms.values(), *(g for g in gradients if g is not None))]
        torch.manual_seed(7)
        terms, distilled, gradients = self.recorded(*given)
        found = [*terms.values(), *(g for g in gradients if g is not None)]
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert float((one - other).norm()) <= 1e-3 * float(other.norm()) + 1e-6
        self.equal += 1
        return terms, distilled, gradients


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "changes", [{}, {"dropout": 0.3, "token_dropout": 0.1}, {"full_softmax": 0, "hard_negatives": 2}]
)
def test_recorded_steps_are_plain_ones(inputs, changes, device):
    config = train.Config(**{**small.CONFIG, "steps": 24, "warmup_steps": 8, "full_softmax": 100, **changes})
    trainer, _ = train.prepare(config, inputs, RunContext(threads=1, device=device))
    trainer._captured = trainer._learn = Compared(trainer._learn, device)
    for step in range(24):
        trainer.step(step, trainer.draw(step))
    assert trainer._captured.equal == 24
    assert bool(trainer._captured.recorded.recorded) == (device == "cuda")
