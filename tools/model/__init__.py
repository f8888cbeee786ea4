"""An explicit-state model of firing, takeover, claiming, settling and rescue, checked exhaustively for small sizes.

`python -m tools.model` checks everything and prints a line for each variant. docs/explanation/model.md says which
statement or function each action stands for.
"""
