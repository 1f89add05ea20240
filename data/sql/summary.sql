SELECT event_type, count(*) AS events, min(ts) AS first_ts, max(ts) AS last_ts,
    min(sample_prob) AS least_prob, max(sample_prob) AS greatest_prob
FROM events GROUP BY event_type ORDER BY event_type;
