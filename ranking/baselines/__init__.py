"""Rankers that the target-aware ranker is measured against, one a file."""
