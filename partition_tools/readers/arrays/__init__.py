"""Arrays by their names, in an archive, in a file of torch, or in objects of PyG and DGL."""
