"""Parts of the ablation: variants of the recipe, what they are asked, one fit, rows and table."""
