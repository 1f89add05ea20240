SELECT count(*) AS rows FROM split;
