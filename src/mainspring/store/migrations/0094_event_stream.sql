-- Events of all tenants on their way to the event stream: written with the change they report, deleted once the stream has
-- them. Only while a server process has an event stream (`serve --events`).
CREATE TABLE event_outbox (
    event_number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,  -- events with the same key ascend
    event_id     uuid NOT NULL,
    tenant_id    int NOT NULL,
    event        text COLLATE "C" NOT NULL,        -- its name in domain/events.py
    key          text COLLATE "C" NOT NULL,        -- a job or an alert: the unit of ordering
    body         jsonb NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT db_now()
);

-- The event stream, as its processes have announced it: after `wanted_until`, no events are written for it.
CREATE TABLE event_stream (
    is_only      boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    wanted_until timestamptz NOT NULL
);

-- Whether events are written for the event stream. Tenants' connections call it, too, and may not read the table.
CREATE FUNCTION events_wanted() RETURNS boolean LANGUAGE sql STABLE
    SECURITY DEFINER SET search_path = mainspring, pg_temp AS $$
    SELECT EXISTS (SELECT FROM event_stream WHERE wanted_until > db_now())
$$;
