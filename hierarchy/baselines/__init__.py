"""Methods that learn little or nothing, for comparison: one a file.

Retrieval methods have `scores(users)`. Hierarchies of products are a `division.Division`, which `emission` turns into
the artifacts of the stages that they stand in for.
"""
