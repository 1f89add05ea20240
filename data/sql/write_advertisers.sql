SELECT * FROM advertisers ORDER BY advertiser_id;
