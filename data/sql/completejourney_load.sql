-- The chosen households and products of the package's files, their visits, and what was promoted to them.
-- A subset is a function of ids alone, so nothing that happens later can change who is in it.
CREATE MACRO subset_hash(id) AS md5_number_lower('strata-subset:' || id) % 1000000;

-- The panel's household ids run from 1 to 2500, whether or not a household has bought yet.
CREATE TABLE household AS
SELECT range AS household_id FROM range(1, 2501)
ORDER BY subset_hash(range), range LIMIT $households;

CREATE TABLE catalogue AS
SELECT *, subset_hash(product_id) < $products_share * 1000000 AS chosen,
    (md5_number_lower($seed || ':product:' || product_id) % 2147483646)::BIGINT + 1 AS draw
FROM read_parquet($products);

-- Every basket of a chosen household is a visit, whatever it holds; it can be read from just after its time on.
CREATE TABLE visit AS
SELECT basket_id, min(household_id) AS household_id, min(store_id) AS store_id, min(week) AS week,
    epoch_us(min(transaction_timestamp)) AS ts,
    (md5_number_lower($seed || ':visit:' || basket_id) % 2147483646)::BIGINT + 1 AS draw
FROM read_parquet($transactions) SEMI JOIN household USING (household_id)
WHERE epoch_us(transaction_timestamp) < $until
GROUP BY basket_id HAVING ts >= $since AND ts < $as_of;

CREATE TABLE bought AS
SELECT t.basket_id, t.product_id, t.sales_value, c.product_id IS NOT NULL AS known, t.file_row_number + 1 AS row
FROM read_parquet($transactions, file_row_number = true) t SEMI JOIN visit USING (basket_id)
LEFT JOIN catalogue c USING (product_id)
WHERE subset_hash(t.product_id) < $products_share * 1000000;

-- Products on display or in the mailer where and when a visit took place; '0' means neither.
CREATE TABLE promotion AS
SELECT product_id, store_id, week, max(display_location) AS display, max(mailer_location) AS mailer, min(draw) AS draw
FROM read_parquet($promotions) JOIN catalogue USING (product_id)
WHERE chosen AND (display_location <> '0' OR mailer_location <> '0')
    AND (store_id, week) IN (SELECT DISTINCT (store_id, week) FROM visit)
GROUP BY product_id, store_id, week;
