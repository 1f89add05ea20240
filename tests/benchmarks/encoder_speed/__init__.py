"""The parts of `strata bench encoders` that measure speed: texts and pictures, models of known shapes, gate, rows."""

from encoders.torchvision_operators import declare_torchvision_operators

declare_torchvision_operators()  # before transformers, which imports torchvision where that is installed
