"""From the files of others to a raw graph: text tables, named arrays, formats, published data sets."""
