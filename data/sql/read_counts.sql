-- Rows that come too late break no rule of the contract, so they do not count as bad.
SELECT (SELECT count(*) FROM typed) AS rows,
    (SELECT count(*) FROM repeated WHERE rank > 1 AND content = kept) AS equal_duplicates,
    (SELECT count(DISTINCT (file, row)) FROM quarantine WHERE "table" = $table AND rule <> 'too_late') AS bad;
