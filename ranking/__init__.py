"""The ranker: jagged as-of examples, target-aware attention, normalized entropy. Sees artifacts only."""
