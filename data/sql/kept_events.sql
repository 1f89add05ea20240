-- The rows that are left of those just typed: sound, the first of their identity, not ingested before, not refused.
INSERT INTO events BY NAME
SELECT unnest(record), known AS known_at FROM typed
ANTI JOIN (SELECT file, row FROM repeated WHERE rank > 1) USING (file, row) ANTI JOIN ingested USING (file, row)
WHERE len(findings) = 0 AND NOT (late AND $drop_late) AND coalesce(known - record.ts <= $max_lateness, true);
