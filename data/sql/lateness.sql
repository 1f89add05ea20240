-- Rows that came too late to be used are set aside; returns how many others were stamped or dropped as late.
INSERT INTO quarantine
SELECT 'events', file, row, 'known_at', 'too_late', ((known - record.ts) / 86400000000)::DECIMAL(18, 2) || ' days' FROM typed
ANTI JOIN (SELECT file, row FROM repeated WHERE rank > 1) USING (file, row) ANTI JOIN ingested USING (file, row)
WHERE known - record.ts > $max_lateness AND len(findings) = 0 AND NOT (late AND $drop_late);
