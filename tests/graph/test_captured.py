import numpy as np
import pytest
import torch

from graph.sampler import Budget, TemporalSampler
from kernels.captured import Captured
from tests.benchmarks.sampler import EVERYTHING, SPAN, check_equal, made_graph

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.gpu
@cuda
def test_samples_on_the_device_have_the_bits_of_those_on_the_host():
    check_equal(made_graph(3000, 300, 60_000), "cuda")


@pytest.mark.gpu
@cuda
def test_a_recorded_sampler_heeds_every_input():
    sampler = TemporalSampler(made_graph(3000, 300, 60_000), EVERYTHING, "cuda")
    recorded = Captured(sampler.sample, "cuda", warm=1)
    rng = np.random.default_rng(0)
    for number in range(4):
        nodes, times, exclude = (torch.from_numpy(rng.integers(0, top, 50)).cuda() for top in (3000, SPAN, 300))
        for given in (exclude, None):
            found = recorded("user", nodes, times, torch.tensor(number, device="cuda"), given)
            plain = sampler.sample("user", nodes, times, number, given)
            assert all(torch.equal(*pair) for pair in zip(found.arrays(), plain.arrays(), strict=True))
    assert recorded.recorded == 2


def test_the_benchmark_checks_what_it_claims():
    graph = made_graph(300, 30, 3000)
    check_equal(graph, "cpu")
    assert TemporalSampler(graph, Budget()).sample("product", np.arange(30), np.full(30, SPAN), 0).mask.any()
