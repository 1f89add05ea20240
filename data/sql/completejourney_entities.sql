-- 'PIZZA/TRADITIONAL' -> 'Pizza/Traditional'; a parenthesis cut off at the end of the field goes with it.
CREATE MACRO tidy(phrase) AS array_to_string(list_transform(regexp_extract_all(
    lower(trim(regexp_replace(regexp_replace(phrase, '\s*\([^)]*$', ''), '\s+', ' ', 'g'))),
    '[a-z0-9'']+|[^a-z0-9'']+'), lambda word: upper(word[1]) || word[2:]), '');

-- The catalogue carries no dates: it counts as known from the start of the log.
INSERT INTO products BY NAME
SELECT product_id, manufacturer_id AS advertiser_id,
    concat_ws(' ', tidy(coalesce(product_type, product_category, department)), tidy(package_size)) AS title,
    CASE WHEN product_category IS NULL THEN [tidy(department)]
         WHEN product_type IS NULL THEN [tidy(department), tidy(product_category)]
         ELSE [tidy(department), tidy(product_category), tidy(product_type)] END AS category,
    map_from_entries(list_filter([{k: 'brand', v: brand}, {k: 'size', v: package_size}], lambda e: e.v IS NOT NULL))
        AS attributes,
    $start AS first_seen, $start AS known_at
FROM catalogue WHERE chosen;

-- An advertiser without products of its own is known from when a campaign or an event names it.
INSERT INTO advertisers BY NAME
WITH named AS (
    SELECT advertiser_id, min(known_at) AS known_at FROM (
        SELECT advertiser_id, known_at FROM products UNION ALL SELECT advertiser_id, known_at FROM campaigns
        UNION ALL SELECT advertiser_id, greatest(ts + 1, known_at) FROM events) GROUP BY advertiser_id),
counted AS (SELECT manufacturer_id, department, count(*) AS products FROM catalogue GROUP BY ALL),
majority AS (
    SELECT manufacturer_id::VARCHAR AS advertiser_id, department FROM counted
    QUALIFY row_number() OVER (PARTITION BY manufacturer_id ORDER BY products DESC, department) = 1)
SELECT advertiser_id, 'Manufacturer ' || advertiser_id AS name, tidy(department) AS vertical, known_at
FROM named JOIN majority USING (advertiser_id);

-- Demographics count as known from the start; another household is known from its first event on.
INSERT INTO users BY NAME
WITH described AS (
    SELECT household_id::VARCHAR AS user_id, map_from_entries(list_filter([
        {k: 'age', v: age}, {k: 'household_comp', v: household_comp}, {k: 'household_size', v: household_size},
        {k: 'home_ownership', v: home_ownership}, {k: 'income', v: income}, {k: 'kids_count', v: kids_count},
        {k: 'marital_status', v: marital_status}], lambda e: e.v IS NOT NULL)) AS attributes
    FROM read_parquet($demographics) SEMI JOIN household USING (household_id)),
active AS (SELECT user_id, min(greatest(ts + 1, known_at)) AS known_at FROM events GROUP BY user_id)
SELECT user_id, d.attributes, least(a.known_at, CASE WHEN d.user_id IS NOT NULL THEN $start END) AS known_at
FROM active a FULL JOIN described d USING (user_id);
