-- The least isolation of programs and functions, in a queue and in all queues of a tenant.
ALTER TABLE queues
    ADD COLUMN min_isolation text NOT NULL DEFAULT 'none',
    ADD CONSTRAINT queues_min_isolation CHECK (min_isolation IN ('none', 'process', 'bwrap', 'container'));
ALTER TABLE tenants
    ADD COLUMN min_isolation text NOT NULL DEFAULT 'none',
    ADD CONSTRAINT tenants_min_isolation CHECK (min_isolation IN ('none', 'process', 'bwrap', 'container'));
