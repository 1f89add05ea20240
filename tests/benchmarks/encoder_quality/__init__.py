"""Whether content vectors say what a product is: labels of neighbours, clusters, and products nobody has touched."""
