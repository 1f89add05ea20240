SELECT count(*) AS rows FROM typed
ANTI JOIN (SELECT file, row FROM repeated WHERE rank > 1) USING (file, row) ANTI JOIN ingested USING (file, row)
WHERE late AND len(findings) = 0 AND ($drop_late OR coalesce(known - record.ts <= $max_lateness, true));
