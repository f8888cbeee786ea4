-- Groups of users, by which gates name who decides.
ALTER TABLE principals ADD COLUMN groups text[] NOT NULL DEFAULT '{}';

-- Who issued a token with the scope `tokens`, and not as an administrator: a user or a token. For approvals, the token is
-- the same person.
ALTER TABLE tokens ADD COLUMN delegated_by uuid;
