SELECT part, count(*) AS rows, min(ts) AS first_ts FROM published GROUP BY part;
