SELECT
    (SELECT sum(v.visits * p.products)::BIGINT
     FROM (SELECT store_id, week, count(*) AS visits FROM visit GROUP BY ALL) v
     JOIN (SELECT store_id, week, count(*) AS products FROM promotion GROUP BY ALL) p USING (store_id, week)) AS candidates,
    (SELECT count(*) FROM exposure WHERE sample_prob = 1) AS bought,
    (SELECT count(*) FROM exposure) AS kept,
    (SELECT count(*) FROM visit) AS visits;
