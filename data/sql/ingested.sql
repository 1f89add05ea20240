-- Rows just typed whose identity the previous artifact holds: equal ones are dropped, differing ones set aside. One
-- pass over the identities of the earlier log, whose rows stream; only rows that meet are kept.
CREATE OR REPLACE TABLE met AS
SELECT h.event_id AS identity, {event_id: h.event_id, user_id: h.user_id, product_id: h.product_id,
    advertiser_id: h.advertiser_id, campaign_id: h.campaign_id, event_type: h.event_type, ts: h.ts, value: h.value,
    surface: h.surface, position: h.position, request_id: h.request_id, sample_prob: h.sample_prob,
    propensity: h.propensity, source: h.source} AS record
FROM read_parquet($parts) h
SEMI JOIN (SELECT identity AS event_id FROM typed WHERE len(findings) = 0) fresh USING (event_id);

INSERT INTO ingested
SELECT t.file, t.row, t.identity, t.record::VARCHAR = met.record::VARCHAR AS same
FROM typed t JOIN met USING (identity)
ANTI JOIN (SELECT file, row FROM repeated WHERE rank > 1) r ON r.file = t.file AND r.row = t.row
WHERE len(t.findings) = 0;

INSERT INTO quarantine
SELECT 'events', file, row, 'event_id', 'conflicting_duplicate', identity FROM ingested WHERE NOT same;
