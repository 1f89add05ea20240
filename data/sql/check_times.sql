-- Per time column: cells given, and cells in a sensible range with the configured unit.
SELECT "column", count(*) AS given, count(*) FILTER (WHERE sensible(micros(text, $unit))) AS sensible
FROM (UNPIVOT (SELECT *, NULL::VARCHAR AS none FROM raw) ON COLUMNS(lambda name: name IN ('ts', 'known_at', 'first_seen', 'start', 'end', 'none'))
      INTO NAME "column" VALUE text)
GROUP BY "column" ORDER BY "column";
