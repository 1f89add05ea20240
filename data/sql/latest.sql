-- By file, when the last of its rows becomes readable [us], and how many are not by $until.
SELECT file, max(visible) AS latest, count(*) FILTER (WHERE visible > $until) AS ahead
FROM (SELECT file, greatest(micros(ts, $unit) + 1, micros(known_at, $unit)) AS visible FROM raw)
WHERE sensible(visible) GROUP BY file;
