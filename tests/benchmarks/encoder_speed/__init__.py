"""The parts of `strata bench encoders`: texts and pictures, models of known shapes, the gate and the rows."""
