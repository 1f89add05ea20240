-- What an event may refer to: products of the files, then those that only the previous artifact has.
CREATE TABLE catalogue AS SELECT product_id, advertiser_id FROM products;
