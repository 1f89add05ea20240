SELECT event_id, user_id, product_id, part FROM split ORDER BY event_id;
