SELECT "table", rule, count(*) AS findings FROM quarantine GROUP BY ALL ORDER BY findings DESC, "table", rule;
