-- Rows that are not readable by $until.
SELECT count(*) AS rows FROM (SELECT greatest(micros(ts, $unit) + 1, micros(known_at, $unit)) AS visible FROM raw)
WHERE visible > $until AND sensible(visible);
