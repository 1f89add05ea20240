SELECT (SELECT count(*) FROM events) + (SELECT count(*) FROM products) + (SELECT count(*) FROM advertisers)
    + (SELECT count(*) FROM campaigns) + (SELECT count(*) FROM users) + (SELECT count(*) FROM quarantine)
    + (SELECT count(*) FROM split) AS rows;
