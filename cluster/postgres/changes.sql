-- Version 2: what all nodes know. What changes() compares is changes.Part.Fits and changes.Call.Stale.
SET LOCAL synchronous_commit = on;
SET LOCAL client_min_messages = warning;

UPDATE mta_cluster.version SET version = 2;

-- sequence has the lock under which changes are numbered: one that is seen has all earlier ones before it.
CREATE TABLE mta_cluster.sequence (
	era  text NOT NULL, -- of this schema
	last bigint NOT NULL
);
INSERT INTO mta_cluster.sequence VALUES (gen_random_uuid()::text, 0);

-- The newest change of each key; one that is removed or has ended stays until all members have read it.
CREATE TABLE mta_cluster.changes (
	kind        text NOT NULL,
	key         bytea NOT NULL CHECK (octet_length(key) <= 2048),
	number      bigint NOT NULL,
	node        int NOT NULL,
	incarnation mta_cluster.uint64 NOT NULL,
	rank        int NOT NULL,
	value       bytea CHECK (octet_length(value) <= 16384), -- NULL: removed
	until       timestamptz,                                -- when it ends by itself
	PRIMARY KEY (kind, key)
);
CREATE UNIQUE INDEX changes_number ON mta_cluster.changes (kind, number);

-- What a node has read of each kind, and the last of its own changes that was done or refused.
CREATE TABLE mta_cluster.readers (
	node        int PRIMARY KEY REFERENCES mta_cluster.members,
	incarnation mta_cluster.uint64 NOT NULL,
	serial      mta_cluster.uint64 NOT NULL,
	read        jsonb NOT NULL
) WITH (fillfactor = 50);

-- A value that is too long is left out.
CREATE FUNCTION mta_cluster.shown_change(c mta_cluster.changes) RETURNS jsonb LANGUAGE sql AS $$
	SELECT jsonb_build_object('kind', c.kind, 'key', encode(c.key, 'base64'), 'number', c.number, 'node', c.node,
		'incarnation', c.incarnation, 'rank', c.rank, 'size', octet_length(c.value),
		'value', CASE WHEN octet_length(c.value) <= 16384 THEN encode(c.value, 'base64') END)
$$;

-- changes carries out a changes.Call. It locks the member's row before that of the sequence, as no other statement does.
CREATE FUNCTION mta_cluster.changes(call jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	writes boolean := jsonb_array_length(call->'parts') > 0;
	head   mta_cluster.sequence;
	valid  mta_cluster.uint64;
	me     mta_cluster.readers;
	part   record;
	here   mta_cluster.changes;
	after  jsonb[] := array_fill(NULL::jsonb, ARRAY[jsonb_array_length(call->'parts')]);
	result jsonb;
BEGIN
	PERFORM mta_cluster.durable();
	SELECT * INTO me FROM mta_cluster.readers r
		WHERE r.node = (call->>'node')::int AND r.incarnation = (call->>'incarnation')::numeric;
	IF writes OR me.read IS DISTINCT FROM call->'after' THEN
		SELECT m.incarnation INTO valid FROM mta_cluster.members m WHERE m.number = (call->>'node')::int FOR SHARE;
	ELSE
		SELECT m.incarnation INTO valid FROM mta_cluster.members m WHERE m.number = (call->>'node')::int;
	END IF;
	IF writes THEN
		SELECT * INTO STRICT head FROM mta_cluster.sequence FOR UPDATE;
	ELSE
		SELECT * INTO STRICT head FROM mta_cluster.sequence;
	END IF;
	SELECT * INTO me FROM mta_cluster.readers r
		WHERE r.node = (call->>'node')::int AND r.incarnation = (call->>'incarnation')::numeric;
	me.serial := COALESCE(me.serial, 0);
	result := jsonb_build_object('era', head.era, 'serial', me.serial, 'timeline', mta_cluster.timeline(),
		'system', (SELECT c.system_identifier FROM pg_control_system() c));
	IF valid IS DISTINCT FROM (call->>'incarnation')::numeric THEN
		RETURN result || '{"forgotten": true}';
	ELSIF head.era <> call->>'era' OR me.serial < (call->>'acknowledged')::numeric
		OR head.last < (SELECT max(a.value::bigint) FROM jsonb_each_text(call->'after') a)
	THEN
		RETURN result || jsonb_build_object('stale', true, 'last', head.last);
	END IF;
	FOR part IN
		SELECT p.kind, decode(p.key, 'base64') AS key, p.serial, p.seen, p.rank, decode(p.value, 'base64') AS value,
			to_timestamp(p.until) AS until, p.n
		FROM ROWS FROM (jsonb_to_recordset(call->'parts') AS (kind text, key text, serial numeric, seen bigint,
			rank int, value text, until bigint)) WITH ORDINALITY
			AS p (kind, key, serial, seen, rank, value, until, n) ORDER BY p.n
	LOOP
		SELECT * INTO here FROM mta_cluster.changes c WHERE c.kind = part.kind AND c.key = part.key;
		IF part.serial > me.serial AND (here.number IS NULL OR here.number <= part.seen OR here.rank < part.rank
			OR (here.node, here.incarnation) = ((call->>'node')::int, valid))
		THEN
			head.last := head.last + 1;
			INSERT INTO mta_cluster.changes VALUES (part.kind, part.key, head.last, (call->>'node')::int, valid,
					part.rank, part.value, part.until)
				ON CONFLICT (kind, key) DO UPDATE SET number = excluded.number, node = excluded.node,
					incarnation = excluded.incarnation, rank = excluded.rank, value = excluded.value,
					until = excluded.until
				RETURNING * INTO here;
		END IF;
		me.serial := greatest(me.serial, part.serial);
		after[part.n] := CASE WHEN here.number IS NOT NULL THEN mta_cluster.shown_change(here) END;
	END LOOP;
	IF writes THEN
		UPDATE mta_cluster.sequence SET last = head.last;
	END IF;
	IF writes OR me.read IS DISTINCT FROM call->'after' THEN
		INSERT INTO mta_cluster.readers VALUES ((call->>'node')::int, valid, me.serial, call->'after')
			ON CONFLICT (node) DO UPDATE SET incarnation = excluded.incarnation, serial = excluded.serial,
				read = excluded.read;
	END IF;
	RETURN result || jsonb_build_object('last', head.last, 'after', to_jsonb(after), 'rows', (
		SELECT COALESCE(jsonb_agg(mta_cluster.shown_change(r) ORDER BY r.number), '[]') FROM (
			SELECT c.* FROM jsonb_each_text(call->'after') a, LATERAL (
				SELECT * FROM mta_cluster.changes c WHERE c.kind = a.key AND c.number > a.value::bigint
				ORDER BY c.number LIMIT (call->>'most')::int) c
			ORDER BY c.number LIMIT (call->>'most')::int) r));
END $$;

-- readers is what each member has read of each kind.
CREATE FUNCTION mta_cluster.readers() RETURNS TABLE (node int, read jsonb) LANGUAGE sql AS $$
	SELECT m.number, COALESCE(r.read, '{}') FROM mta_cluster.members m
		LEFT JOIN mta_cluster.readers r ON r.node = m.number AND r.incarnation = m.incarnation WHERE NOT m.forgotten
$$;

-- tidied deletes removed keys and what has ended a day ago, once all members have read it: most of them at a time.
CREATE FUNCTION mta_cluster.tidied(most int) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	n bigint;
BEGIN
	PERFORM mta_cluster.durable();
	WITH r AS MATERIALIZED (SELECT read FROM mta_cluster.readers()),
		by_all AS MATERIALIZED ( -- a kind that nobody has read has no row here
			SELECT k.kind, min(COALESCE((r.read->>k.kind)::bigint, 0)) AS number
			FROM r, (SELECT DISTINCT jsonb_object_keys(read) AS kind FROM r) k GROUP BY k.kind)
	DELETE FROM mta_cluster.changes c USING (
		SELECT o.kind, o.key FROM mta_cluster.changes o JOIN by_all b ON o.kind = b.kind AND o.number <= b.number
		WHERE o.value IS NULL OR o.until < clock_timestamp() - interval '1 day'
		LIMIT most FOR UPDATE OF o SKIP LOCKED) old WHERE (c.kind, c.key) = (old.kind, old.key);
	GET DIAGNOSTICS n = ROW_COUNT;
	RETURN to_jsonb(n);
END $$;
