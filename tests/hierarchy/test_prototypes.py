import pytest
import torch
from torch.nn.functional import normalize

from hierarchy.memory import VectorMemory
from hierarchy.prototypes import DUPLICATE_COSINE, Prototypes, duplicates


def _vectors(count: int, seed: int = 0) -> torch.Tensor:
    return normalize(torch.randn(count, 8, generator=torch.Generator().manual_seed(seed)), dim=1)


@pytest.fixture
def prototypes() -> Prototypes:
    made = Prototypes((3, 9), 8, hub_parents=2, hub_children=4)
    made.initialise(_vectors(60), seed=0)
    made.join()
    return made


def test_nobody_sees_primitives_before_they_exist_and_have_joined():
    made = Prototypes((3, 9), 8, 2, 4)
    assert made.hubs(_vectors(5)) is None
    made.initialise(_vectors(60), seed=0)
    assert made.hubs(_vectors(5)) is None


def test_hubs_are_all_coarse_ones_and_children_of_the_best_parents(prototypes):
    state = _vectors(5, seed=1)
    hubs = prototypes.hubs(state)
    assert torch.equal(hubs.coarse, prototypes.vectors(0))
    assert hubs.children.shape == (5, 8, 8)
    assert hubs.mask[:, :3].all()
    best = (state @ prototypes.vectors(0).t()).topk(2, dim=1).indices
    parent = (prototypes.vectors(1) @ prototypes.vectors(0).t()).argmax(dim=1)
    for row in range(5):
        for vector in hubs.children[row][hubs.mask[row, 3:]]:
            own = int((prototypes.vectors(1) - vector).norm(dim=1).argmin())
            assert int(parent[own]) in best[row].tolist()


def test_the_number_of_hubs_does_not_grow_with_the_finest_level():
    sizes = []
    for finest in (9, 40):
        made = Prototypes((3, finest), 8, 2, 4)
        made.initialise(_vectors(120), seed=0)
        made.join()
        sizes.append(made.hubs(_vectors(2)).mask.shape[1])
    assert sizes[0] == sizes[1]


def test_an_empty_primitive_is_not_shut_out(prototypes):
    prototypes.mass(0)[1] = 0.0
    assert torch.isfinite(prototypes.hubs(_vectors(4)).log_mass).all()


def test_update_moves_a_primitive_towards_its_members_and_keeps_unit_norm(prototypes):
    target = _vectors(1, seed=7)
    assigned = [torch.zeros(20, 3), torch.zeros(20, 9)]
    assigned[0][:, 2] = assigned[1][:, 5] = 1.0
    before = [prototypes.vectors(level).clone() for level in (0, 1)]
    prototypes.update(target.expand(20, -1), assigned, momentum=0.5, spread=0.0)
    for level, row in ((0, 2), (1, 5)):
        moved = prototypes.vectors(level)
        assert (moved[row] @ target[0]) > (before[level][row] @ target[0])
        assert torch.allclose(moved.norm(dim=1), torch.ones(len(moved)), atol=1e-5)
    assert prototypes.mass(0)[2] > 1 / 3


def test_the_spread_step_parts_near_duplicates():
    made = Prototypes((2,), 8, 1, 1)
    made.initialise(_vectors(10), seed=0)
    base = _vectors(1, seed=3)
    made.vectors(0).copy_(normalize(torch.cat([base, base + 0.05 * _vectors(1, seed=4)]), dim=1))
    made.sums_0.copy_(made.vectors(0) / 2)
    before = float(made.vectors(0)[0] @ made.vectors(0)[1])
    made.update(made.vectors(0).clone(), [torch.eye(2)], momentum=0.9, spread=0.02)
    assert float(made.vectors(0)[0] @ made.vectors(0)[1]) < before


def test_dead_and_duplicate_primitives_restart_where_vectors_are_served_worst(prototypes):
    prototypes.vectors(0)[1] = prototypes.vectors(0)[0]
    prototypes.mass(0).copy_(torch.tensor([0.6, 0.3, 0.1]))
    prototypes.mass(1)[4] = 0.0
    pool = _vectors(30, seed=9)
    worst = pool[(pool @ prototypes.vectors(0).t()).amax(dim=1).argmin()].clone()
    counts = prototypes.reseed(pool, dead_share=0.01)
    assert counts == [1, 1]
    assert torch.equal(prototypes.vectors(0)[1], worst)
    assert not duplicates(prototypes.vectors(0), prototypes.mass(0)).any()


def test_what_restarts_together_restarts_apart():
    made = Prototypes((4,), 8, 1, 1)
    made.initialise(_vectors(20), seed=0)
    made.vectors(0).copy_(_vectors(1).expand(4, -1))
    twins = _vectors(3, seed=2).repeat_interleave(5, dim=0)
    assert made.reseed(twins, dead_share=0.0) == [3]
    assert not duplicates(made.vectors(0), made.mass(0)).any()


def test_settling_makes_every_primitive_somebodys_nearest_and_shares_evenly():
    centres = _vectors(6, seed=3)
    crowd = torch.cat([centres[:1].expand(300, -1), centres.repeat_interleave(30, dim=0)])
    vectors = normalize(crowd + 0.2 * _vectors(len(crowd), seed=4), dim=1)
    made = Prototypes((2, 6), 8, 1, 1)
    made.initialise(vectors, seed=0)
    made.vectors(1)[1:] = normalize(vectors[:5] + 0.01, dim=1)  # all but one drawn to the crowd
    made.mass(1).copy_(torch.tensor([0.95, 0.01, 0.01, 0.01, 0.01, 0.01]))
    made.settle(vectors, 5, lambda cosines, mass: cosines)
    nearest = (vectors @ made.vectors(1).t()).argmax(dim=1)
    assert len(nearest.unique()) == 6
    assert (centres @ made.vectors(1).t()).amax(dim=1).min() > 0.8
    assert not duplicates(made.vectors(1), made.mass(1)).any()
    assert torch.allclose(made.vectors(1).norm(dim=1), torch.ones(6), atol=1e-5)


def test_of_two_duplicates_the_lighter_one_is_named():
    vectors = normalize(torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]]), dim=1)
    assert float(vectors[0] @ vectors[1]) > DUPLICATE_COSINE
    assert duplicates(vectors, torch.tensor([0.1, 0.5, 0.4])).tolist() == [True, False, False]
    assert duplicates(vectors, torch.tensor([0.3, 0.3, 0.4])).tolist() == [False, True, False]


def test_soft_parents_are_distributions(prototypes):
    parents = prototypes.parents(1)
    assert parents.shape == (9, 3)
    assert torch.allclose(parents.sum(dim=1), torch.ones(9), atol=1e-5)


def test_memory_returns_what_was_pushed_and_forgets_the_oldest():
    memory = VectorMemory(5, 8)
    assert memory.stored().shape == (0, 8)
    first, second = _vectors(3), _vectors(4, seed=1)
    memory.push(first)
    assert torch.equal(memory.stored(), first)
    memory.push(second)
    kept = {tuple(row.tolist()) for row in memory.stored()}
    assert kept == {tuple(row.tolist()) for row in torch.cat([first[2:], second])}
    memory.push(_vectors(9, seed=2))
    assert {tuple(row.tolist()) for row in memory.stored()} == {tuple(row.tolist()) for row in _vectors(9, seed=2)[-5:]}
