import numpy as np

from graph.statistics import summary


def test_summary_of_degrees():
    figures = summary(np.array([0, 0, 1, 3, 96]))
    assert figures == {"nodes": 5, "isolated": 2, "mean": 20.0, "max": 96, "p50": 1.0, "p90": 3.0, "p99": 3.0}


def test_no_nodes_have_a_summary_too():
    assert summary(np.zeros(0, np.int64))["nodes"] == 0
