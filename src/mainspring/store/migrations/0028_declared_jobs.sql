-- The version of a job that code declared last; null: not declared by code. A newer version was edited by a user, and the
-- next load of the code replaces it.
ALTER TABLE jobs ADD COLUMN declared_version int;
