-- What carries no date was known from the start of the log ($start if that is given); what is only referred to is known
-- from when that can be read. Both stay as they are when later rows join the log.
UPDATE products SET known_at = coalesce($start, (SELECT min(known_at) FROM events))
WHERE known_at IS NULL;
UPDATE products SET first_seen = known_at WHERE first_seen IS NULL;
UPDATE advertisers SET known_at = coalesce($start, (SELECT min(known_at) FROM events)) WHERE known_at IS NULL;
UPDATE campaigns SET known_at = coalesce($start, (SELECT min(known_at) FROM events)) WHERE known_at IS NULL;
UPDATE users SET known_at = coalesce($start, (SELECT min(known_at) FROM events)) WHERE known_at IS NULL;

INSERT INTO campaigns BY NAME
SELECT campaign_id, min(greatest(ts + 1, known_at)) AS known_at FROM events ANTI JOIN campaigns USING (campaign_id)
WHERE campaign_id IS NOT NULL GROUP BY campaign_id;

INSERT INTO advertisers BY NAME
SELECT advertiser_id, min(known_at) AS known_at FROM (
    SELECT advertiser_id, known_at FROM products UNION ALL SELECT advertiser_id, known_at FROM campaigns
    UNION ALL SELECT advertiser_id, greatest(ts + 1, known_at) FROM events) ANTI JOIN advertisers USING (advertiser_id)
WHERE advertiser_id IS NOT NULL GROUP BY advertiser_id;

INSERT INTO users BY NAME
SELECT user_id, min(greatest(ts + 1, known_at)) AS known_at FROM events ANTI JOIN users USING (user_id) GROUP BY user_id;
