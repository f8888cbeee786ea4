-- The statements of `conn=` for the user's connection to Mainspring's database. All parameters are text: drivers
-- differ in how they encode JSON and instants. `:name` becomes the placeholder of the driver.

-- name: submit
SELECT CAST(mainspring.submit(
    job => CAST(:job AS text),
    params => CAST(CAST(:params AS text) AS jsonb),
    at => CAST(CAST(:at AS text) AS timestamptz),
    key => CAST(:key AS text)
) AS text);

-- name: submit_many
SELECT CAST(json_agg(made.execution_id ORDER BY made.place) AS text) FROM (
    SELECT item.place, mainspring.submit(
        job => item.value ->> 0,
        params => nullif(item.value -> 1, 'null'),
        at => CAST(item.value ->> 2 AS timestamptz),
        key => item.value ->> 3
    ) AS execution_id
    FROM jsonb_array_elements(CAST(CAST(:items AS text) AS jsonb)) WITH ORDINALITY AS item (value, place)
) AS made;
