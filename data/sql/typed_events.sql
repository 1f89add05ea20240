-- Rows that are due: readable by $until and, from a file that was read before, not by $since. The others are not yet
-- known, or were taken then. A row that is new but was readable by $since is late: it becomes known just after.
-- An event without an id of its own is identified by everything that says who did what, when and where.
CREATE OR REPLACE TABLE typed AS
WITH timed AS (
    SELECT *, micros(ts, $unit) AS happened, greatest(micros(known_at, $unit), happened) AS readable, greatest(happened + 1, readable) AS visible
    FROM raw),
due AS (
    SELECT *, NOT consumed AND coalesce(visible <= $since, false) AS late FROM timed
    WHERE CASE WHEN sensible(visible) THEN coalesce(visible <= $until, true) AND NOT (consumed AND visible <= $since)
          ELSE NOT consumed END)
SELECT r.file, r.row, r.late, CASE WHEN r.late THEN $since + 1 ELSE r.readable END AS known, known AS priority,
    coalesce(r.event_id, md5(row(r.user_id, r.product_id, r.advertiser_id, r.campaign_id, r.event_type,
        r.ts, r.request_id, r.surface, r.position)::VARCHAR)) AS identity,
    coalesce(($types::VARCHAR[])[list_position($words::VARCHAR[], r.event_type)], r.event_type) AS kind,
    {event_id: identity, user_id: r.user_id, product_id: r.product_id,
     advertiser_id: coalesce(r.advertiser_id, p.advertiser_id), campaign_id: r.campaign_id,
     event_type: kind, ts: r.happened,
     value: try_cast(r.value AS FLOAT), surface: r.surface, position: try_cast(r.position AS INTEGER),
     request_id: r.request_id, sample_prob: coalesce(try_cast(r.sample_prob AS FLOAT), 1),
     propensity: try_cast(r.propensity AS FLOAT), source: coalesce(r.source, $name)} AS record,
    list_filter([
        null_finding('user_id', r.user_id), null_finding('ts', r.ts), null_finding('event_type', r.event_type),
        finding(coalesce(r.product_id, r.advertiser_id, r.campaign_id) IS NULL, 'product_id', 'no_target', NULL),
        finding(r.product_id IS NOT NULL AND p.product_id IS NULL, 'product_id', 'unknown_product', r.product_id),
        finding(NOT list_contains($known::VARCHAR[], kind), 'event_type', 'unknown_event_type', r.event_type),
        id_finding('event_id', r.event_id), id_finding('user_id', r.user_id), id_finding('product_id', r.product_id),
        id_finding('advertiser_id', r.advertiser_id), id_finding('campaign_id', r.campaign_id),
        id_finding('request_id', r.request_id),
        time_finding('ts', r.ts, $unit), time_finding('known_at', r.known_at, $unit),
        finding(coalesce(sensible(r.happened) AND r.happened > $latest, false), 'ts', 'after_now', r.ts),
        finding(coalesce(r.happened <= $latest AND sensible(r.readable) AND r.readable > $latest, false), 'known_at', 'after_now', r.known_at),
        number_finding('value', r.value, 0, 1e30), number_finding('position', r.position, 0, 2147483647),
        number_finding('sample_prob', r.sample_prob, 1e-30, 1), number_finding('propensity', r.propensity, 1e-30, 1)],
        lambda found: found IS NOT NULL) AS findings
FROM due r LEFT JOIN catalogue p USING (product_id);
