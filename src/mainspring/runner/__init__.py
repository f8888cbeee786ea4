"""The process in which functions are called, apart from the worker: it may hang, crash and be killed by itself."""
