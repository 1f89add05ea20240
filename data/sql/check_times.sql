-- Per time column: cells given, cells in a sensible range with the configured unit, and with each unit in turn.
SELECT "column", count(*) AS given,
    count(*) FILTER (WHERE sensible(micros(text, $unit))) AS sensible,
    count(*) FILTER (WHERE sensible(micros(text, 'iso'))) AS iso, count(*) FILTER (WHERE sensible(micros(text, 's'))) AS s,
    count(*) FILTER (WHERE sensible(micros(text, 'ms'))) AS ms, count(*) FILTER (WHERE sensible(micros(text, 'us'))) AS us,
    min(text) AS example
FROM (UNPIVOT (SELECT *, NULL::VARCHAR AS none FROM raw) ON COLUMNS(lambda name: name IN ('ts', 'known_at', 'first_seen', 'start', 'end', 'none'))
      INTO NAME "column" VALUE text)
GROUP BY "column" ORDER BY "column";
