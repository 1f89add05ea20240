"""What the learner's benchmark is made of: a shop in memory, a peer, and measures."""
