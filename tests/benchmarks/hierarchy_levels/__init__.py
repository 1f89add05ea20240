"""The parts of `strata bench hierarchy`: the ground, the methods and their trials, and what is measured of each."""
