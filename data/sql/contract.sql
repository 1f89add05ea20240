-- The tables every source fills, in the columns of data/schema.py; times in microseconds since 1970 UTC.
CREATE TABLE events (event_id VARCHAR, user_id VARCHAR, product_id VARCHAR, advertiser_id VARCHAR, campaign_id VARCHAR,
    event_type VARCHAR, ts BIGINT, known_at BIGINT, value FLOAT, surface VARCHAR, position INTEGER, request_id VARCHAR,
    sample_prob FLOAT, propensity FLOAT, source VARCHAR);
CREATE TABLE products (product_id VARCHAR, advertiser_id VARCHAR, title VARCHAR, description VARCHAR, category VARCHAR[],
    image VARCHAR[], video VARCHAR, attributes MAP(VARCHAR, VARCHAR), price FLOAT, first_seen BIGINT, known_at BIGINT);
CREATE TABLE advertisers (advertiser_id VARCHAR, name VARCHAR, description VARCHAR, vertical VARCHAR, known_at BIGINT);
CREATE TABLE campaigns (campaign_id VARCHAR, advertiser_id VARCHAR, name VARCHAR, kind VARCHAR, start BIGINT,
    "end" BIGINT, known_at BIGINT);
CREATE TABLE users (user_id VARCHAR, attributes MAP(VARCHAR, VARCHAR), known_at BIGINT);
CREATE TABLE ingested (file VARCHAR, row BIGINT, identity VARCHAR, same BOOLEAN);
CREATE TABLE quarantine ("table" VARCHAR, file VARCHAR, row BIGINT, "column" VARCHAR, rule VARCHAR, value VARCHAR);
CREATE TABLE split (event_id VARCHAR, user_id VARCHAR, product_id VARCHAR, part VARCHAR, visible_from BIGINT);
