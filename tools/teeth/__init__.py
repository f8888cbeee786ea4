"""Planted bugs: small edits of a copy of the tree, each of which a narrow selection of tests must catch."""
