"""The runner: the process that calls Python functions, separate from the worker so that it may hang or crash."""
