-- The first and the last date of a tokens artifact.
SELECT min(as_of) AS first, max(as_of) AS last FROM read_parquet($tokens);
