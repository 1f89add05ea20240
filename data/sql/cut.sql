-- Rows outside the window; an entity may lie before it (it is known already) but not after.
DELETE FROM events WHERE greatest(ts + 1, known_at) > $until OR greatest(ts + 1, known_at) <= $since;
DELETE FROM products WHERE known_at > $until;
DELETE FROM advertisers WHERE known_at > $until;
DELETE FROM campaigns WHERE known_at > $until;
DELETE FROM users WHERE known_at > $until;
DELETE FROM split WHERE visible_from > $until;
