-- What running attempts say of their progress rides on their session's row, which every heartbeat writes anyway.
ALTER TABLE sessions ADD COLUMN progress jsonb;
