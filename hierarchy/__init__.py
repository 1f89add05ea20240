"""The graph learner, its interest primitives, and the tokens and indexes made from them."""
