-- The newest bag by $time of every entity in two tokens artifacts, and how many events it had by then.
-- old_words and new_words are the vocabularies: level, primitive_id, place (row in the learner), label.
CREATE TEMP TABLE old_bags AS
WITH newest AS (
    SELECT entity_type, entity_id, max(as_of) AS as_of
    FROM read_parquet($old) WHERE rank = 0 AND as_of <= $time GROUP BY ALL
)
SELECT entity_type, entity_id, level, rank, primitive_id, place, weight::DOUBLE AS weight
FROM read_parquet($old) JOIN newest USING (entity_type, entity_id, as_of) JOIN old_words USING (level, primitive_id);

CREATE TEMP TABLE new_bags AS
WITH newest AS (
    SELECT entity_type, entity_id, max(as_of) AS as_of
    FROM read_parquet($new) WHERE rank = 0 AND as_of <= $time GROUP BY ALL
)
SELECT entity_type, entity_id, level, rank, primitive_id, place, weight::DOUBLE AS weight
FROM read_parquet($new) JOIN newest USING (entity_type, entity_id, as_of) JOIN new_words USING (level, primitive_id);

CREATE TEMP TABLE degrees AS
SELECT entity_type, entity_id, arg_max(degree, as_of) AS degree
FROM read_parquet($embeddings) WHERE head = 0 AND as_of <= $time GROUP BY ALL;

-- What both say of an entity at a level: strongest primitive under public id and under row, and the weight that the two
-- bags share and hold, so that the change of a bag is 1 - shared / (held - shared).
CREATE TEMP TABLE changes AS
WITH
held AS (
    SELECT entity_type, entity_id, level, sum(weight) AS weight
    FROM (FROM old_bags UNION ALL FROM new_bags) GROUP BY ALL
),
shared AS (
    SELECT
        entity_type, entity_id, level,
        sum(CASE WHEN o.primitive_id = n.primitive_id THEN least(o.weight, n.weight) ELSE 0 END) AS named,
        sum(CASE WHEN o.place = n.place THEN least(o.weight, n.weight) ELSE 0 END) AS placed
    FROM old_bags o JOIN new_bags n USING (entity_type, entity_id, level) GROUP BY ALL
)
SELECT
    level, entity_type,
    CASE WHEN coalesce(degree, 0) = 0 THEN 'new' WHEN degree <= 20 THEN 'rare' ELSE 'rest' END AS bucket,
    o.primitive_id AS was, n.primitive_id AS now,
    o.place <> n.place AS moved_place,
    1 - named / (held.weight - named) AS bag, 1 - placed / (held.weight - placed) AS raw_bag
FROM (FROM old_bags WHERE rank = 0) o
JOIN (FROM new_bags WHERE rank = 0) n USING (entity_type, entity_id, level)
JOIN shared USING (entity_type, entity_id, level)
JOIN held USING (entity_type, entity_id, level)
LEFT JOIN degrees USING (entity_type, entity_id);
