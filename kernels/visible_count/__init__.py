"""How many leading edges of a time-ordered CSR row are visible at a time."""
