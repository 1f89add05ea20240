"""Parts of the benchmark `ranking`: models and what is tuned, the search, the rows."""
