"""`twinlens pull`: models of other code bases, published or from a local file, as bundles."""
