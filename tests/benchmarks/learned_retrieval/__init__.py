"""The parts of `retrieval_learned`: sets as plain arrays, ranking on the device, trials and the final test.

Only torch, numpy, scipy and pyarrow are needed to measure, so that a bare GPU machine will do.
"""
