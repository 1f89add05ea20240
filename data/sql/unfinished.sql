INSERT INTO events BY NAME SELECT * FROM read_parquet($path);
