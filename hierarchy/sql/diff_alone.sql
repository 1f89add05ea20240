-- Entities that only one of the two knows by then.
WITH
before AS (SELECT DISTINCT entity_type, entity_id FROM old_bags),
after AS (SELECT DISTINCT entity_type, entity_id FROM new_bags)
SELECT
    (SELECT count(*) FROM (FROM before EXCEPT FROM after)) AS gone,
    (SELECT count(*) FROM (FROM after EXCEPT FROM before)) AS come;
