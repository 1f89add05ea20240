"""Parts of the scaling-law benchmark."""
