"""What the benchmark of delayed labels is made of: logs with planted delay laws, and a model to train on them."""
