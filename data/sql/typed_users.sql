-- A file that was read before has nothing to say but what had not yet become known then.
CREATE OR REPLACE TABLE typed AS
SELECT file, row, consumed::BIGINT AS priority, user_id AS identity,
    {user_id: user_id, attributes: given(attributes), known_at: micros(known_at, $unit)} AS record,
    list_filter([null_finding('user_id', user_id), id_finding('user_id', user_id), time_finding('known_at', known_at, $unit)],
        lambda found: found IS NOT NULL) AS findings
FROM raw WHERE NOT (consumed AND coalesce(micros(known_at, $unit) <= $since, true));
