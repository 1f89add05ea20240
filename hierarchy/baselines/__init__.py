"""Simpler methods, for comparison, one a file: retrieval by `scores(users)`, hierarchies as supergraph artifacts."""
