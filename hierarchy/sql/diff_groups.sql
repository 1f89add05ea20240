-- Entities and what changed, by level, type and how much is known of them.
SELECT
    level, entity_type, bucket, count(*) AS entities,
    count(*) FILTER (was <> now) AS strongest, sum(bag) AS bag,
    count(*) FILTER (moved_place) AS raw_strongest, sum(raw_bag) AS raw_bag
FROM changes GROUP BY ALL ORDER BY level, entity_type, bucket;
