// Forms that help while one types. Everything works without it.
