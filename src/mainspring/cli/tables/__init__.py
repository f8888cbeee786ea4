"""How each noun is printed: table columns and detail lines."""
