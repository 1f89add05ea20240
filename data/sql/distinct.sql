-- Set broken rows aside; of rows that share an identity keep the first by priority, then by content, so that their
-- order in the files does not matter. Equal rows are dropped, differing ones are set aside too, unless a newer file
-- describes the same entity.
INSERT INTO quarantine
SELECT $table, file, row, unnest(findings, recursive := true) FROM typed WHERE len(findings) > 0;

CREATE OR REPLACE TABLE repeated AS
SELECT file, row, identity, content, row_number() OVER same AS rank, first_value(content) OVER same AS kept,
    $table <> 'events' AND priority > first_value(priority) OVER same AS outdated
FROM (SELECT file, row, identity, priority, record::VARCHAR AS content FROM typed
      SEMI JOIN (SELECT identity FROM typed WHERE len(findings) = 0 GROUP BY identity HAVING count(*) > 1) USING (identity)
      WHERE len(findings) = 0)
WINDOW same AS (PARTITION BY identity ORDER BY priority, content, file, row);

INSERT INTO quarantine
SELECT $table, file, row, $identity, 'conflicting_duplicate', identity FROM repeated
WHERE content <> kept AND NOT outdated;
