-- Statements of `ms.transaction` for the user's database, PostgreSQL or SQLite: one row per execution whose effects are
-- committed. `?` is a parameter, whatever placeholder the driver uses.

-- name: create
CREATE TABLE IF NOT EXISTS mainspring_markers (
    key        varchar(200) PRIMARY KEY,
    attempt    int NOT NULL,
    result     text,
    marked_at  timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP
);

-- name: mark
INSERT INTO mainspring_markers (key, attempt) VALUES (?, ?) ON CONFLICT (key) DO NOTHING;

-- name: find
SELECT result FROM mainspring_markers WHERE key = ?;

-- name: keep
UPDATE mainspring_markers SET result = ? WHERE key = ?;
