-- The commonest changes of a strongest primitive at each level.
SELECT moves.level, was, was_words.label AS was_label, now, now_words.label AS now_label, entities
FROM (SELECT level, was, now, count(*) AS entities FROM changes WHERE was <> now GROUP BY ALL) AS moves
JOIN old_words AS was_words ON was_words.level = moves.level AND was_words.primitive_id = was
JOIN new_words AS now_words ON now_words.level = moves.level AND now_words.primitive_id = now
QUALIFY row_number() OVER (PARTITION BY moves.level ORDER BY entities DESC, was, now) <= $most
ORDER BY moves.level, entities DESC, was, now;
