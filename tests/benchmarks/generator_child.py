"""The measured side of tests.benchmarks.generator."""

from tests.benchmarks import children
from tests.benchmarks.generator import work

if __name__ == "__main__":
    children.measured(work)
