SELECT (SELECT count(*) FROM typed) AS rows,
    (SELECT count(*) FROM repeated WHERE rank > 1 AND content = kept) AS equal_duplicates,
    (SELECT count(DISTINCT (file, row)) FROM quarantine WHERE "table" = $table) AS bad;
