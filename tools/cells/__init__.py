"""A simulation of tenants on cells: several complete databases, a directory, and moves of tenants between them.

`python -m tools.cells` prints the figures of docs/explanation/scale.md. It uses neither a database nor the clock: the
same seed gives the same figures. Nothing of it is part of the product.
"""
