"""Parts of `plots`: what is read of the result files, and how it is drawn."""
