-- An event without an id of its own is identified by everything that says who did what, when and where.
CREATE OR REPLACE TABLE typed AS
SELECT r.file, r.row, coalesce(r.event_id, md5(row(r.user_id, r.product_id, r.advertiser_id, r.campaign_id, r.event_type,
        r.ts, r.request_id, r.surface, r.position)::VARCHAR)) AS identity,
    coalesce(($types::VARCHAR[])[list_position($words::VARCHAR[], r.event_type)], r.event_type) AS kind,
    {event_id: identity, user_id: r.user_id, product_id: r.product_id,
     advertiser_id: coalesce(r.advertiser_id, p.advertiser_id), campaign_id: r.campaign_id,
     event_type: kind,
     ts: micros(r.ts, $unit), known_at: greatest(micros(r.known_at, $unit), micros(r.ts, $unit)),
     value: try_cast(r.value AS FLOAT), surface: r.surface, position: try_cast(r.position AS INTEGER),
     request_id: r.request_id, sample_prob: coalesce(try_cast(r.sample_prob AS FLOAT), 1),
     propensity: try_cast(r.propensity AS FLOAT), source: coalesce(r.source, $name)} AS record,
    list_filter([
        null_finding('user_id', r.user_id), null_finding('ts', r.ts), null_finding('event_type', r.event_type),
        finding(coalesce(r.product_id, r.advertiser_id, r.campaign_id) IS NULL, 'product_id', 'no_target', NULL),
        finding(r.product_id IS NOT NULL AND p.product_id IS NULL, 'product_id', 'unknown_product', r.product_id),
        finding(NOT list_contains($known::VARCHAR[], kind), 'event_type', 'unknown_event_type', r.event_type),
        time_finding('ts', r.ts, $unit), time_finding('known_at', r.known_at, $unit),
        number_finding('value', r.value, 0, 1e30), number_finding('position', r.position, 0, 2147483647),
        number_finding('sample_prob', r.sample_prob, 1e-30, 1), number_finding('propensity', r.propensity, 1e-30, 1)],
        lambda found: found IS NOT NULL) AS findings
FROM raw r LEFT JOIN products p USING (product_id);
