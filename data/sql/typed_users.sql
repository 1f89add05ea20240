CREATE OR REPLACE TABLE typed AS
SELECT file, row, user_id AS identity,
    {user_id: user_id, attributes: given(attributes), known_at: micros(known_at, $unit)} AS record,
    list_filter([null_finding('user_id', user_id), time_finding('known_at', known_at, $unit)],
        lambda found: found IS NOT NULL) AS findings
FROM raw;
