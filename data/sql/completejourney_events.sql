INSERT INTO quarantine
SELECT 'events', 'transactions.parquet', row, 'product_id', 'unknown_product', product_id::VARCHAR
FROM bought WHERE NOT known;

INSERT INTO events BY NAME
SELECT 't-' || v.household_id || '-' || v.basket_id || '-' || b.product_id AS event_id,
    v.household_id AS user_id, b.product_id, c.manufacturer_id AS advertiser_id, 'purchase' AS event_type, v.ts,
    v.ts AS known_at, b.sales_value AS value, 'store' AS surface, v.basket_id AS request_id, 1 AS sample_prob,
    $source AS source
FROM bought b JOIN visit v USING (basket_id) JOIN catalogue c USING (product_id);

INSERT INTO events BY NAME
SELECT 'i-' || x.household_id || '-' || x.basket_id || '-' || x.product_id AS event_id,
    x.household_id AS user_id, x.product_id, c.manufacturer_id AS advertiser_id, 'impression' AS event_type, x.ts,
    x.ts AS known_at, concat_ws('+', 'display:' || nullif(x.display, '0'), 'mailer:' || nullif(x.mailer, '0')) AS surface,
    x.basket_id AS request_id, x.sample_prob, $source AS source
FROM exposure x JOIN catalogue c USING (product_id);

-- A campaign belongs to the manufacturer with most products among its coupons; the lowest id breaks a tie.
INSERT INTO campaigns BY NAME
WITH owned AS (
    SELECT campaign_id, manufacturer_id, count(DISTINCT product_id) AS products
    FROM read_parquet($coupons) JOIN catalogue USING (product_id) GROUP BY ALL),
owner AS (
    SELECT campaign_id, manufacturer_id FROM owned
    QUALIFY row_number() OVER (PARTITION BY campaign_id ORDER BY products DESC, manufacturer_id) = 1)
SELECT d.campaign_id, o.manufacturer_id AS advertiser_id, 'Campaign ' || d.campaign_id AS name,
    d.campaign_type AS kind, epoch_us(d.start_date) AS start, epoch_us(d.end_date) AS "end",
    epoch_us(d.start_date) AS known_at
FROM read_parquet($campaign_descriptions) d LEFT JOIN owner o USING (campaign_id)
WHERE epoch_us(d.start_date) < $until;

INSERT INTO events BY NAME
SELECT 'r-' || r.household_id || '-' || r.campaign_id AS event_id, r.household_id AS user_id, c.advertiser_id,
    c.campaign_id, 'impression' AS event_type, c.start AS ts, c.start AS known_at, 'campaign:' || c.kind AS surface,
    'r-' || r.household_id || '-' || r.campaign_id AS request_id, 1 AS sample_prob, $source AS source
FROM read_parquet($campaigns) r SEMI JOIN household USING (household_id)
JOIN campaigns c ON c.campaign_id = r.campaign_id::VARCHAR
WHERE c.start >= $since AND c.start < $as_of;

-- A redemption is dated by day, so it can be known only when that day is over.
INSERT INTO events BY NAME
WITH owned AS (
    SELECT coupon_upc, manufacturer_id, count(DISTINCT product_id) AS products
    FROM read_parquet($coupons) JOIN catalogue USING (product_id) GROUP BY ALL),
owner AS (
    SELECT coupon_upc, manufacturer_id FROM owned
    QUALIFY row_number() OVER (PARTITION BY coupon_upc ORDER BY products DESC, manufacturer_id) = 1)
SELECT 'c-' || r.household_id || '-' || r.campaign_id || '-' || r.coupon_upc
        || '-' || strftime(r.redemption_date, '%Y%m%d') AS event_id,
    r.household_id AS user_id, o.manufacturer_id AS advertiser_id, c.campaign_id, 'conversion' AS event_type,
    epoch_us(r.redemption_date) AS ts, epoch_us(r.redemption_date + INTERVAL 1 DAY) AS known_at,
    'campaign:' || c.kind AS surface, 'r-' || r.household_id || '-' || r.campaign_id AS request_id,
    1 AS sample_prob, $source AS source
FROM read_parquet($coupon_redemptions) r SEMI JOIN household USING (household_id)
JOIN campaigns c ON c.campaign_id = r.campaign_id::VARCHAR LEFT JOIN owner o USING (coupon_upc)
WHERE epoch_us(r.redemption_date) < $until
    AND epoch_us(r.redemption_date + INTERVAL 1 DAY) > $since AND epoch_us(r.redemption_date + INTERVAL 1 DAY) <= $as_of;
