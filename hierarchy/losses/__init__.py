"""One loss a file, each naming its paper."""
