"""One public data set or file format a module; each yields the tables of `data.schema`."""
