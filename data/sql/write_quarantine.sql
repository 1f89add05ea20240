SELECT * FROM quarantine ORDER BY "table", file, row, "column", rule;
