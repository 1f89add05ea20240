-- Events that became known a day or more after they happened.
SELECT count(*) AS rows FROM events WHERE known_at - ts >= 86400000000;
