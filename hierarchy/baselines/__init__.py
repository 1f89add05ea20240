"""Retrieval methods that learn little or nothing, for comparison: one a file, each with `scores(users)`."""
