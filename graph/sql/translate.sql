-- Row numbers of the same id in many files and in the node table.
SELECT m.file_index::INT AS file, m.file_row_number::INT AS code, n.file_row_number AS id
FROM read_parquet($names, file_row_number = true) AS m
JOIN read_parquet($nodes, file_row_number = true) AS n ON m.entity_id = n.entity_id;
