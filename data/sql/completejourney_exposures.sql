-- What a visitor could see: all that was bought, and a sample of the rest at $negative_prob.
CREATE TABLE exposure AS
SELECT v.household_id, v.basket_id, v.ts, p.product_id, p.display, p.mailer, 1.0::FLOAT AS sample_prob
FROM bought b JOIN visit v USING (basket_id)
JOIN promotion p ON p.product_id = b.product_id AND p.store_id = v.store_id AND p.week = v.week;

-- The product of two md5 draws modulo the prime 2^31 - 1 is uniform for every visit and every product, depends
-- on (seed, basket, product) only, and costs one multiplication for each of very many candidates.
INSERT INTO exposure
SELECT v.household_id, v.basket_id, v.ts, p.product_id, p.display, p.mailer, $negative_prob::FLOAT
FROM promotion p JOIN visit v USING (store_id, week)
ANTI JOIN bought b ON b.basket_id = v.basket_id AND b.product_id = p.product_id
WHERE (v.draw * p.draw) % 2147483647 <= $negative_prob * 2147483647;
