-- An event may come while its run is still queued: it is kept under the id that the run will have.
ALTER TABLE run_events DROP CONSTRAINT run_events_run_id_fkey;
