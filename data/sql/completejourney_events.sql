-- Purchases, exposures (all that were bought, a hash sample of the rest), campaign receipts and redemptions.
CREATE TABLE exposure AS
SELECT v.household_id, v.basket_id, v.ts, p.product_id, p.display, p.mailer, 1.0 AS sample_prob
FROM bought b JOIN visit v USING (basket_id)
JOIN promotion p ON p.product_id = b.product_id AND p.store_id = v.store_id AND p.week = v.week;

-- The product of two md5 draws modulo the prime 2^31 - 1 is uniform for every visit and every product,
-- depends on (seed, basket, product) only, and costs one multiplication for each of the many candidates.
INSERT INTO exposure
SELECT v.household_id, v.basket_id, v.ts, p.product_id, p.display, p.mailer, $negative_prob::DOUBLE
FROM promotion p JOIN visit v USING (store_id, week)
ANTI JOIN bought b ON b.basket_id = v.basket_id AND b.product_id = p.product_id
WHERE (v.draw * p.draw) % 2147483647 <= $negative_prob::DOUBLE * 2147483647;

CREATE TABLE coupon_owner AS
SELECT campaign_id, coupon_upc, manufacturer_id, count(DISTINCT product_id) AS products
FROM read_parquet($coupons) JOIN catalogue USING (product_id) GROUP BY ALL;

CREATE TABLE campaign AS
SELECT d.campaign_id, d.campaign_type AS kind, epoch_us(d.start_date) AS start, epoch_us(d.end_date) AS "end",
    o.manufacturer_id
FROM read_parquet($campaign_descriptions) d LEFT JOIN (
    SELECT campaign_id, manufacturer_id FROM (
        SELECT c.campaign_id, p.manufacturer_id, count(DISTINCT c.product_id) AS products
        FROM read_parquet($coupons) c JOIN catalogue p USING (product_id) GROUP BY ALL)
    QUALIFY row_number() OVER (PARTITION BY campaign_id ORDER BY products DESC, manufacturer_id) = 1) o
USING (campaign_id);

CREATE TABLE event AS
SELECT 't-' || b.household_id || '-' || b.basket_id || '-' || b.product_id AS event_id, b.household_id, b.product_id,
    c.manufacturer_id, NULL::BIGINT AS campaign_id, 'purchase' AS event_type, v.ts, v.ts AS known_at,
    b.sales_value::FLOAT AS value, 'store' AS surface, b.basket_id::VARCHAR AS request_id, 1.0 AS sample_prob
FROM bought b JOIN visit v USING (basket_id) JOIN catalogue c USING (product_id)
UNION ALL
SELECT 'i-' || x.household_id || '-' || x.basket_id || '-' || x.product_id, x.household_id, x.product_id,
    c.manufacturer_id, NULL, 'impression', x.ts, x.ts, NULL,
    concat_ws('+', 'display:' || nullif(x.display, '0'), 'mailer:' || nullif(x.mailer, '0')),
    x.basket_id::VARCHAR, x.sample_prob
FROM exposure x JOIN catalogue c USING (product_id);

INSERT INTO event
SELECT 'r-' || r.household_id || '-' || r.campaign_id, r.household_id, NULL, c.manufacturer_id, r.campaign_id,
    'impression', c.start, c.start, NULL, 'campaign:' || lower(c.kind), 'r-' || r.household_id || '-' || r.campaign_id, 1.0
FROM read_parquet($campaigns) r SEMI JOIN household USING (household_id) JOIN campaign c USING (campaign_id)
WHERE c.start < (SELECT max(ts) FROM visit);

-- A redemption is dated by day, so it can be known only when that day is over.
INSERT INTO event
SELECT 'c-' || r.household_id || '-' || r.campaign_id || '-' || r.coupon_upc || '-' || strftime(r.redemption_date, '%Y%m%d'),
    r.household_id, NULL, o.manufacturer_id, r.campaign_id, 'conversion', epoch_us(r.redemption_date),
    epoch_us(r.redemption_date + INTERVAL 1 DAY), NULL, 'campaign:' || lower(c.kind),
    'r-' || r.household_id || '-' || r.campaign_id, 1.0
FROM read_parquet($coupon_redemptions) r SEMI JOIN household USING (household_id) JOIN campaign c USING (campaign_id)
LEFT JOIN (SELECT coupon_upc, manufacturer_id FROM (
        SELECT coupon_upc, manufacturer_id, sum(products) AS products FROM coupon_owner GROUP BY ALL)
    QUALIFY row_number() OVER (PARTITION BY coupon_upc ORDER BY products DESC, manufacturer_id) = 1) o USING (coupon_upc)
WHERE epoch_us(r.redemption_date) <= (SELECT max(ts) FROM visit);
