"""Compute primitives over jagged data. Docstring only: `transformers` probes for a package of this name."""
