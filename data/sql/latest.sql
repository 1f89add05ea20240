-- By file, when the last of its rows became readable [us].
SELECT file, max(visible) FILTER (WHERE sensible(visible)) AS latest
FROM (SELECT file, greatest(micros(ts, $unit) + 1, micros(known_at, $unit)) AS visible FROM raw) GROUP BY file;
