"""Methods to compare with, one a file: from counting what sells to LightGCN and SASRec, each with `scores(users)`."""
