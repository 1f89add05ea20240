-- A file that was read before has nothing to say but what had not yet become known then.
CREATE OR REPLACE TABLE typed AS
SELECT file, row, consumed::BIGINT AS priority, campaign_id AS identity,
    {campaign_id: campaign_id, advertiser_id: advertiser_id, name: name, kind: kind, start: micros(start, $unit),
     "end": micros("end", $unit), known_at: micros(coalesce(known_at, start), $unit)} AS record,
    list_filter([null_finding('campaign_id', campaign_id), id_finding('campaign_id', campaign_id), id_finding('advertiser_id', advertiser_id), time_finding('start', start, $unit),
        time_finding('end', "end", $unit), time_finding('known_at', known_at, $unit)],
        lambda found: found IS NOT NULL) AS findings
FROM raw WHERE NOT (consumed AND coalesce(micros(coalesce(known_at, start), $unit) <= $since, true));
