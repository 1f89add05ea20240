-- The same where no event names any.
WITH named AS (
    SELECT entity_id, min(known_at) AS known_at FROM catalogue GROUP BY entity_id
)
SELECT entity_id, known_at FROM named ANTI JOIN settled USING (entity_id) ORDER BY known_at, entity_id;
