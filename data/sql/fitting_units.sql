-- Cells of each time column in a sensible range with each unit in turn, to say which one was meant.
SELECT "column", min(text) AS example,
    count(*) FILTER (WHERE sensible(micros(text, 'iso'))) AS iso, count(*) FILTER (WHERE sensible(micros(text, 's'))) AS s,
    count(*) FILTER (WHERE sensible(micros(text, 'ms'))) AS ms, count(*) FILTER (WHERE sensible(micros(text, 'us'))) AS us
FROM (UNPIVOT (SELECT *, NULL::VARCHAR AS none FROM raw) ON COLUMNS(lambda name: name IN ('ts', 'known_at', 'first_seen', 'start', 'end', 'none'))
      INTO NAME "column" VALUE text)
GROUP BY "column" ORDER BY "column";
