-- A published set as the contract's tables. Whatever carries no date gets one in complete.sql.
CREATE TEMP TABLE published AS
SELECT concat_ws('-', i.user_id, i.product_id, i.event_type, i.ts // 1000000) AS event_id, i.*, c.advertiser_id
FROM interactions i LEFT JOIN catalogue c USING (product_id);

INSERT INTO events BY NAME
SELECT event_id, user_id, product_id, advertiser_id, event_type, ts, ts AS known_at, value, 1 AS sample_prob,
    $source AS source
FROM published;

-- A set without a split is all train, and has no table of parts.
INSERT INTO split BY NAME
SELECT event_id, user_id, product_id, part, ts + 1 AS visible_from FROM published
WHERE (SELECT count(DISTINCT part) FROM published) > 1;

INSERT INTO products BY NAME
SELECT product_id, c.* EXCLUDE (product_id)
FROM (SELECT DISTINCT product_id FROM interactions) FULL JOIN catalogue c USING (product_id);

INSERT INTO advertisers BY NAME
SELECT DISTINCT advertiser_id, advertiser_id AS name FROM catalogue WHERE advertiser_id IS NOT NULL;

INSERT INTO users BY NAME SELECT user_id, attributes FROM people;
