-- By the day on which a row became readable (data/parts.py), then by time.
SELECT * FROM events ORDER BY (greatest(ts + 1, known_at) - 1) // 86400000000, ts, event_id;
