INSERT INTO catalogue SELECT product_id, advertiser_id FROM read_parquet($products) old ANTI JOIN products USING (product_id);
