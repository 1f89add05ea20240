"""The parts of `strata bench graph`: a generated log, one process a builder, and the check that all built the same."""
