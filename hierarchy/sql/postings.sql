-- Who holds each primitive, heaviest first; a bag holds from its date until the entity's next one.
WITH bags AS (
    SELECT
        entity_type, entity_id, as_of,
        lead(as_of) OVER (PARTITION BY entity_type, entity_id ORDER BY as_of) AS until
    FROM (SELECT DISTINCT entity_type, entity_id, as_of FROM read_parquet($tokens))
)
SELECT level, primitive_id, entity_type, weight, entity_id, as_of, until
FROM read_parquet($tokens) JOIN bags USING (entity_type, entity_id, as_of)
ORDER BY level, primitive_id, entity_type, weight DESC, entity_id, as_of;
