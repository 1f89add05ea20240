-- Views of the package's files, the chosen households and products, and everything keyed by them.
-- A subset is a function of ids alone, so nothing that happens later can change who is in it.
CREATE MACRO subset_hash(id) AS md5_number_lower('strata-subset:' || id) % 1000000;

CREATE MACRO tidy(phrase) AS array_to_string(list_transform(regexp_extract_all(
    lower(trim(regexp_replace(regexp_replace(phrase, '\s*\([^)]*$', ''), '\s+', ' ', 'g'))),
    '[a-z0-9'']+|[^a-z0-9'']+'), lambda word: upper(word[1]) || word[2:]), '');

CREATE TABLE household AS
SELECT range AS household_id FROM range(1, 2501)
ORDER BY subset_hash(range), range LIMIT coalesce($households::BIGINT, 2500);

CREATE TABLE catalogue AS
SELECT product_id, manufacturer_id, brand, package_size AS size, department, product_category, product_type,
    subset_hash(product_id) < $products_share::DOUBLE * 1000000 AS chosen
FROM read_parquet($products);

-- Every basket of a chosen household is a visit, whatever it holds.
CREATE TABLE visit AS
SELECT basket_id, any_value(household_id) AS household_id, any_value(store_id) AS store_id, any_value(week) AS week,
    epoch_us(min(transaction_timestamp)) AS ts,
    (md5_number_lower($seed || ':visit:' || basket_id) % 2147483646)::BIGINT + 1 AS draw
FROM read_parquet($transactions) SEMI JOIN household USING (household_id)
WHERE week <= coalesce($weeks::BIGINT, 1000)
GROUP BY basket_id;

CREATE TABLE bought AS
SELECT household_id, basket_id, product_id, sales_value, c.chosen, file_row_number + 1 AS row
FROM read_parquet($transactions, file_row_number = true) SEMI JOIN visit USING (basket_id)
LEFT JOIN catalogue c USING (product_id)
WHERE coalesce(c.chosen, true);

-- Products on display or in the mailer where and when a visit took place; '0' means neither.
CREATE TABLE promotion AS
SELECT product_id::INTEGER AS product_id, store_id::INTEGER AS store_id, week::INTEGER AS week,
    max(display_location) AS display, max(mailer_location) AS mailer,
    (md5_number_lower($seed || ':product:' || product_id) % 2147483646)::BIGINT + 1 AS draw
FROM read_parquet($promotions)
SEMI JOIN (SELECT product_id FROM catalogue WHERE chosen) USING (product_id)
SEMI JOIN visit USING (store_id, week)
WHERE display_location <> '0' OR mailer_location <> '0'
GROUP BY ALL;
