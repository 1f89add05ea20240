"""Parts of the retrieval benchmark: what is known and asked, methods, their search, figures."""
