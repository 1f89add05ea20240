-- A file that was read before has nothing to say but what had not yet become known then.
CREATE OR REPLACE TABLE typed AS
SELECT file, row, consumed::BIGINT AS priority, advertiser_id AS identity,
    {advertiser_id: advertiser_id, name: name, description: description, vertical: vertical,
     known_at: micros(known_at, $unit)} AS record,
    list_filter([null_finding('advertiser_id', advertiser_id), id_finding('advertiser_id', advertiser_id), time_finding('known_at', known_at, $unit)],
        lambda found: found IS NOT NULL) AS findings
FROM raw WHERE NOT (consumed AND coalesce(micros(known_at, $unit) <= $since, true));
