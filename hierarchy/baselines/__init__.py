"""Simple retrieval methods that the learner is measured against, one a file."""
