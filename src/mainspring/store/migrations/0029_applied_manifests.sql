-- What `mainspring apply` last wrote: the base of the three-way comparison, and the owner for pruning.
CREATE TABLE applied_manifests (
    tenant_id   int NOT NULL REFERENCES tenants,
    kind        text COLLATE "C" NOT NULL,
    name        text COLLATE "C" NOT NULL,
    owner       text COLLATE "C" NOT NULL,
    content     jsonb NOT NULL,
    digest      bytea NOT NULL,
    object_id   uuid,
    version     int,
    applied_at  timestamptz NOT NULL DEFAULT db_now(),
    applied_by  text NOT NULL,
    PRIMARY KEY (tenant_id, kind, name)
);
CREATE INDEX applied_manifests_owner ON applied_manifests (tenant_id, owner, kind, name);
