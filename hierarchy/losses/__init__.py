"""Losses of the learner, one a file; each names its paper, its shapes and who is student and who is teacher."""
