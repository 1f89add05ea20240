SELECT count(*) FILTER (WHERE same) AS rows FROM ingested;
