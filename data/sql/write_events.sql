SELECT * FROM events ORDER BY ts, event_id;
