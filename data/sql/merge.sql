-- Entities of the previous artifact beside those just read: the newest description counts, a known one keeps its time,
-- and what is new became known after the previous artifact was made.

UPDATE products SET known_at = greatest(known_at, $since + 1);
UPDATE products SET first_seen = coalesce(first_seen, known_at);
UPDATE products SET known_at = old.known_at, first_seen = old.first_seen FROM read_parquet($products) old WHERE old.product_id = products.product_id;
INSERT INTO products BY NAME SELECT * FROM read_parquet($products) old ANTI JOIN products USING (product_id);

UPDATE advertisers SET known_at = greatest(known_at, $since + 1);
UPDATE advertisers SET known_at = old.known_at FROM read_parquet($advertisers) old WHERE old.advertiser_id = advertisers.advertiser_id;
INSERT INTO advertisers BY NAME SELECT * FROM read_parquet($advertisers) old ANTI JOIN advertisers USING (advertiser_id);

UPDATE campaigns SET known_at = greatest(known_at, $since + 1);
UPDATE campaigns SET known_at = old.known_at FROM read_parquet($campaigns) old WHERE old.campaign_id = campaigns.campaign_id;
INSERT INTO campaigns BY NAME SELECT * FROM read_parquet($campaigns) old ANTI JOIN campaigns USING (campaign_id);

UPDATE users SET known_at = greatest(known_at, $since + 1);
UPDATE users SET known_at = old.known_at FROM read_parquet($users) old WHERE old.user_id = users.user_id;
INSERT INTO users BY NAME SELECT * FROM read_parquet($users) old ANTI JOIN users USING (user_id);
