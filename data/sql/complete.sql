-- What carries no date was known from the start of the log; what is only referred to is known from then on.
UPDATE products SET known_at = (SELECT min(ts) FROM events), first_seen = (SELECT min(ts) FROM events)
WHERE known_at IS NULL;
UPDATE advertisers SET known_at = (SELECT min(ts) FROM events) WHERE known_at IS NULL;
UPDATE campaigns SET known_at = (SELECT min(ts) FROM events) WHERE known_at IS NULL;
UPDATE users SET known_at = (SELECT min(ts) FROM events) WHERE known_at IS NULL;

INSERT INTO campaigns BY NAME
SELECT campaign_id, min(known_at) AS known_at FROM events
WHERE campaign_id IS NOT NULL AND campaign_id NOT IN (SELECT campaign_id FROM campaigns) GROUP BY campaign_id;

INSERT INTO advertisers BY NAME
SELECT advertiser_id, min(known_at) AS known_at FROM (
    SELECT advertiser_id, known_at FROM products UNION ALL SELECT advertiser_id, known_at FROM campaigns
    UNION ALL SELECT advertiser_id, known_at FROM events)
WHERE advertiser_id IS NOT NULL AND advertiser_id NOT IN (SELECT advertiser_id FROM advertisers) GROUP BY advertiser_id;

INSERT INTO users BY NAME
SELECT user_id, min(known_at) AS known_at FROM events
WHERE user_id NOT IN (SELECT user_id FROM users) GROUP BY user_id;
