"""Sealed bundles: the files of a run, written once, checked by whoever reads them, thinned by their age."""
