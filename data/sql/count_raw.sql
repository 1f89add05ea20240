SELECT count(*) AS rows FROM raw;
