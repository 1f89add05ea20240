"""Contracts and storage: schemas, artifacts, snapshots, ingest. Imported by every other folder."""
