"""The user / advertiser / product graph: id maps, memory-mapped CSR, temporal sampling."""
