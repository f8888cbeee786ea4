-- What a token with the scope `worker` may register for. Null, as in every token issued before: no restriction.
ALTER TABLE tokens ADD COLUMN queues text[], ADD COLUMN labels text[], ADD COLUMN kinds text[];

-- Who may act for a session. Null in sessions that an older api process registered.
ALTER TABLE sessions
    ADD COLUMN token_id uuid,
    ADD COLUMN key_digest bytea,
    ADD COLUMN uid bigint,
    ADD COLUMN shares_server_user boolean NOT NULL DEFAULT false;

-- Signs the credentials of attempts.
INSERT INTO server_keys (name, key) VALUES ('attempts', uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));
