-- Nodes that are not settled yet, by the first row that names them.
WITH mentioned AS (
    SELECT entity_id, known_at FROM read_parquet($named)
    UNION ALL SELECT entity_id, known_at FROM catalogue
), named AS (
    SELECT entity_id, min(known_at) AS known_at FROM mentioned GROUP BY entity_id
)
SELECT entity_id, known_at FROM named ANTI JOIN settled USING (entity_id) ORDER BY known_at, entity_id;
