SELECT file, row, "column", rule, value FROM quarantine WHERE "table" = $table ORDER BY file, row, "column", rule LIMIT 5;
