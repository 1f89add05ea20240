SELECT "column", count(*) AS given, count(try_cast(text AS DOUBLE)) AS read,
    min(text) FILTER (WHERE try_cast(text AS DOUBLE) IS NULL) AS example
FROM (UNPIVOT (SELECT *, NULL::VARCHAR AS none FROM raw) ON COLUMNS(lambda name: name IN ('value', 'position', 'sample_prob', 'propensity', 'price', 'none'))
      INTO NAME "column" VALUE text)
GROUP BY "column" ORDER BY "column";
