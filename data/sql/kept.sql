SELECT unnest(record) FROM typed ANTI JOIN (SELECT file, row FROM repeated WHERE rank > 1) USING (file, row)
WHERE len(findings) = 0;
