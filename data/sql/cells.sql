-- How cells of the raw table read. Times count as sensible from 1971 to 2200: seconds taken for milliseconds, or the
-- other way round, fall outside.
CREATE MACRO micros_number(text, factor) AS CASE WHEN regexp_full_match(text, '-?[0-9]{1,18}')
    THEN try_cast(try_cast(text AS BIGINT)::HUGEINT * factor AS BIGINT)
    ELSE try_cast(try_cast(text AS DECIMAL(30, 6)) * factor AS BIGINT) END;

-- 'order' numbers the events 0, 1, 2, ...: one second each from 2000 on.
CREATE MACRO micros(text, unit) AS CASE unit
    WHEN 'iso' THEN epoch_us(try_cast(text AS TIMESTAMPTZ))
    WHEN 's' THEN micros_number(text, 1000000)
    WHEN 'ms' THEN micros_number(text, 1000)
    WHEN 'us' THEN micros_number(text, 1)
    WHEN 'order' THEN micros_number(text, 1000000) + 946684800000000 END;

CREATE MACRO sensible(micros) AS coalesce(micros BETWEEN 31536000000000 AND 7258118400000000, false);

-- A value as it is reported: without NUL, and shortened when it is long.
CREATE MACRO shown(value) AS CASE WHEN strlen(value) > 200
    THEN replace(left(value, 60), chr(0), '\0') || '... (' || strlen(value) || ' bytes)' ELSE replace(value, chr(0), '\0') END;

CREATE MACRO finding(broken, "column", rule, value) AS
    CASE WHEN broken THEN {"column": "column", rule: rule, value: shown(value)} END;

-- One rule a cell: what is given must be a time within range, or a number between two bounds.
CREATE MACRO time_finding("column", text, unit) AS
    finding(text IS NOT NULL AND NOT sensible(micros(text, unit)), "column",
        CASE WHEN micros(text, unit) IS NULL THEN 'not_a_time' ELSE 'time_out_of_range' END, text);
CREATE MACRO number_finding("column", text, least, greatest) AS
    finding(text IS NOT NULL AND NOT coalesce(try_cast(text AS DOUBLE) BETWEEN least AND greatest, false), "column",
        CASE WHEN try_cast(text AS DOUBLE) IS NULL THEN 'not_a_number'
             WHEN isnan(try_cast(text AS DOUBLE)) THEN 'nan'
             WHEN try_cast(text AS DOUBLE) < least THEN 'too_small' ELSE 'too_large' END, text);
-- Ids may hold anything but NUL, at which other software cuts them off, in up to 1,024 bytes.
CREATE MACRO id_finding("column", text) AS
    finding(text IS NOT NULL AND (strlen(text) > 1024 OR contains(text, chr(0))), "column",
        CASE WHEN strlen(text) > 1024 THEN 'too_long' ELSE 'holds_nul' END, text);
CREATE MACRO null_finding("column", text) AS finding(text IS NULL, "column", 'null', NULL);

-- A list cell: elements behind unit separators (from list columns), a JSON array, or text split at a separator.
CREATE MACRO pieces(text, separator) AS list_filter(list_transform(
    CASE WHEN starts_with(text, chr(31)) THEN string_split(text, chr(31))
         WHEN starts_with(text, '[') AND json_valid(text) THEN from_json(text, '["VARCHAR"]')
         ELSE string_split(text, separator) END, lambda piece: trim(piece)), lambda piece: piece <> '');

-- A level that follows itself would make a category its own parent: it is named once.
CREATE MACRO levels(path) AS list_filter(path, lambda level, i: i = 1 OR level IS DISTINCT FROM path[i - 1]);

CREATE MACRO given(attributes) AS
    map_from_entries(list_filter(map_entries(attributes), lambda entry: entry.value IS NOT NULL));
