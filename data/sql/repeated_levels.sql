-- Products whose category names a level twice in a row.
SELECT count(*) AS rows FROM (SELECT pieces(category, $separator) AS path FROM raw) WHERE len(path) <> len(levels(path));
