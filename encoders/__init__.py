"""Content encoders: text and attributes (images and video have their place), fused with a missing mask."""
