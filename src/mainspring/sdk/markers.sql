-- For the database of whoever uses `ms.transaction`, PostgreSQL or SQLite: one row for each execution whose effects were
-- committed. `?` stands for a parameter, whatever the driver calls it.

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
