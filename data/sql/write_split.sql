SELECT * FROM split ORDER BY event_id;
