SELECT * FROM users ORDER BY user_id;
