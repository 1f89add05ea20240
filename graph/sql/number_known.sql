-- The same where no new event is to be looked at.
WITH mentioned AS (
    SELECT entity_id, known_at, known_at AS event_at FROM before
    UNION ALL SELECT entity_id, known_at, NULL FROM catalogue
)
SELECT entity_id, min(known_at) AS known_at, min(event_at) AS event_at
FROM mentioned GROUP BY entity_id ORDER BY known_at, entity_id;
