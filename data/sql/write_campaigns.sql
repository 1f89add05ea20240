SELECT * FROM campaigns ORDER BY campaign_id;
