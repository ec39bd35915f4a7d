-- Version 1. The whole script is one transaction; the role that runs it owns what it creates.
-- What the functions compare is owner.Part.Fits and once.Part.Apply.
SET LOCAL synchronous_commit = on;
SET LOCAL client_min_messages = warning;

CREATE SCHEMA mta_cluster;

CREATE TABLE mta_cluster.version (version int NOT NULL);
INSERT INTO mta_cluster.version VALUES (1);

CREATE DOMAIN mta_cluster.uint64 AS numeric(20) CHECK (VALUE >= 0 AND VALUE < 18446744073709551616);

CREATE TABLE mta_cluster.members (
	number      int PRIMARY KEY CHECK (number BETWEEN 1 AND 1023),
	address     text NOT NULL,
	version     text NOT NULL,
	incarnation mta_cluster.uint64 NOT NULL,
	process     mta_cluster.uint64 NOT NULL,
	life        mta_cluster.uint64 NOT NULL,
	forgotten   boolean NOT NULL,
	seen        timestamptz NOT NULL
);

-- Each row is written every second: room in its page spares the index.
CREATE TABLE mta_cluster.shards (
	shard       int PRIMARY KEY CHECK (shard BETWEEN 0 AND 63),
	node        int NOT NULL DEFAULT 0 CHECK (node BETWEEN 0 AND 1023),
	incarnation mta_cluster.uint64 NOT NULL DEFAULT 0,
	boot        mta_cluster.uint64 NOT NULL DEFAULT 0,
	epoch       mta_cluster.uint64 NOT NULL DEFAULT 0,
	beat        mta_cluster.uint64 NOT NULL DEFAULT 0,
	clock       bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 25);
INSERT INTO mta_cluster.shards SELECT generate_series(0, 63);

CREATE TABLE mta_cluster.books (
	shard int NOT NULL REFERENCES mta_cluster.shards,
	name  bytea NOT NULL,
	node  int NOT NULL,
	n1    bigint NOT NULL,
	n2    bigint NOT NULL,
	n3    bigint NOT NULL,
	n4    bigint NOT NULL,
	PRIMARY KEY (shard, name, node)
) WITH (fillfactor = 50);

CREATE TABLE mta_cluster.keys (
	key         bytea PRIMARY KEY,
	node        int NOT NULL,
	incarnation mta_cluster.uint64 NOT NULL,
	process     mta_cluster.uint64 NOT NULL,
	number      mta_cluster.uint64 NOT NULL,
	done        boolean NOT NULL DEFAULT false,
	note        bytea NOT NULL,
	until       timestamptz
) PARTITION BY HASH (key);
DO $$
BEGIN
	FOR i IN 0..15 LOOP
		EXECUTE format('CREATE TABLE mta_cluster.keys_%s PARTITION OF mta_cluster.keys
			FOR VALUES WITH (MODULUS 16, REMAINDER %s)', i, i);
	END LOOP;
END $$;
CREATE INDEX keys_open ON mta_cluster.keys (node) WHERE NOT done;
CREATE INDEX keys_until ON mta_cluster.keys (until) WHERE done;

-- durable makes the commit of the running transaction wait for the standby, and report when it did not. A setting that
-- is attached to a function would be gone before the commit.
CREATE FUNCTION mta_cluster.durable() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('synchronous_commit', 'on', true), set_config('lock_timeout', '2s', true),
		set_config('client_min_messages', 'warning', true);
END $$;

-- timeline is the one that is written: pg_control_checkpoint() has it only after the first checkpoint.
CREATE FUNCTION mta_cluster.timeline() RETURNS bigint LANGUAGE sql AS $$
	SELECT ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint
$$;

-- probe commits something and changes nothing.
CREATE FUNCTION mta_cluster.probe() RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM mta_cluster.durable(), v.version FROM mta_cluster.version v FOR UPDATE;
	RETURN 'true';
END $$;

-- standbys are those for which a commit may wait. The owner of the function must see them: pg_monitor.
CREATE FUNCTION mta_cluster.standbys() RETURNS jsonb LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog AS $$
	SELECT jsonb_build_object(
		'names', COALESCE(jsonb_agg(application_name || ' (' || sync_state || ')')
			FILTER (WHERE state = 'streaming' AND sync_state IN ('sync', 'quorum')), '[]'),
		'hidden', count(*) FILTER (WHERE sync_state IS NULL))
	FROM pg_stat_replication
$$;

-- replicated fails without a synchronous standby, unless a service is known to replicate.
CREATE FUNCTION mta_cluster.replicated(known boolean) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	standbys jsonb := mta_cluster.standbys();
BEGIN
	IF known OR standbys->'names' <> '[]' THEN
		RETURN;
	ELSIF standbys->'hidden' <> '0' THEN
		RAISE EXCEPTION 'the owner of the schema mta_cluster does not see the state of standbys: grant it pg_monitor';
	END IF;
	RAISE EXCEPTION 'the database has no synchronous standby: a failover would lose what it has acknowledged. '
		'Set synchronous_standby_names; --replicated is for a service that replicates below PostgreSQL';
END $$;

-- forgotten raises a node's incarnation, so that nothing counts any more that its processes ask for and claim. It
-- returns false when that has been done.
CREATE FUNCTION mta_cluster.forgotten(node int, dead boolean) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	there mta_cluster.members;
	ago   int;
BEGIN
	PERFORM mta_cluster.durable();
	SELECT * INTO there FROM mta_cluster.members m WHERE m.number = node FOR UPDATE;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'the cluster has no node %', node;
	ELSIF there.forgotten THEN
		RETURN 'false';
	END IF;
	ago := extract(epoch FROM clock_timestamp() - there.seen);
	IF ago < 20 AND NOT dead THEN
		RAISE EXCEPTION 'node % at % answered % s ago: stop it and wait for 20 s; --dead if its machine is off', node,
			there.address, ago;
	END IF;
	UPDATE mta_cluster.members m SET incarnation = there.incarnation + 1, process = 0, life = 0, forgotten = true
		WHERE m.number = node;
	RETURN 'true';
END $$;

-- shards carries out an owner.Call. Parts are done in the order of their shards, so that two calls never wait for each
-- other. Was.Clock and To.Clock count as Fits says.
CREATE FUNCTION mta_cluster.shards(call jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	part  record;
	here  mta_cluster.shards;
	was   mta_cluster.shards;
	after mta_cluster.shards;
	fits  boolean;
	done  boolean[] := array_fill(false, ARRAY[jsonb_array_length(call)]);
	taken int[] := '{}';
BEGIN
	PERFORM mta_cluster.durable();
	FOR part IN
		SELECT * FROM ROWS FROM (jsonb_to_recordset(call)
			AS (shard int, take boolean, was jsonb, "to" jsonb, changes jsonb)) WITH ORDINALITY
			AS p (shard, take, was, "to", changes, n) ORDER BY p.shard, p.n
	LOOP
		SELECT * INTO STRICT here FROM mta_cluster.shards s WHERE s.shard = part.shard FOR UPDATE;
		was := jsonb_populate_record(here, part.was);
		after := jsonb_populate_record(here, part."to");
		after.clock := here.clock;
		IF part.take THEN
			fits := here = was OR here = after;
		ELSE
			fits := (here.node, here.incarnation, here.boot, here.epoch) = (was.node, was.incarnation, was.boot, was.epoch)
				AND was.beat <= here.beat AND here.beat < after.beat;
		END IF;
		CONTINUE WHEN NOT fits;
		done[part.n] := true;
		UPDATE mta_cluster.shards s SET node = after.node, incarnation = after.incarnation, boot = after.boot,
			epoch = after.epoch, beat = after.beat,
			clock = greatest(here.clock, (extract(epoch FROM clock_timestamp()) * 1000000000)::bigint)
			WHERE s.shard = part.shard;
		IF part.take THEN
			taken := taken || part.shard;
		END IF;
		PERFORM mta_cluster.written(part.shard, part.changes);
	END LOOP;
	RETURN jsonb_build_object(
		'system', (SELECT c.system_identifier FROM pg_control_system() c), 'timeline', mta_cluster.timeline(),
		'done', to_jsonb(done), 'heads', (SELECT jsonb_agg(s) FROM mta_cluster.shards s),
		'books', (SELECT jsonb_agg(jsonb_build_object('shard', b.shard, 'name', encode(b.name, 'base64'), 'node', b.node,
			'n', ARRAY[b.n1, b.n2, b.n3, b.n4])) FROM mta_cluster.books b WHERE b.shard = ANY (taken)));
END $$;

-- written puts entries into the book of a shard whose row is locked. Of two with one name and node the later counts.
CREATE FUNCTION mta_cluster.written(at int, changes jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	e record;
BEGIN
	FOR e IN SELECT decode(c.name, 'base64') AS name, c.node, c.n
		FROM jsonb_to_recordset(changes) AS c (name text, node int, n bigint[])
	LOOP
		IF e.n[1] = 0 AND e.n[2] = 0 THEN
			DELETE FROM mta_cluster.books b WHERE b.shard = at AND b.name = e.name AND b.node = e.node;
		ELSE
			INSERT INTO mta_cluster.books VALUES (at, e.name, e.node, e.n[1], e.n[2], e.n[3], e.n[4])
				ON CONFLICT (shard, name, node) DO UPDATE
				SET n1 = excluded.n1, n2 = excluded.n2, n3 = excluded.n3, n4 = excluded.n4;
		END IF;
	END LOOP;
END $$;

CREATE FUNCTION mta_cluster.shown(k mta_cluster.keys) RETURNS jsonb LANGUAGE sql AS $$
	SELECT jsonb_build_object('key', encode(k.key, 'base64'), 'node', k.node, 'incarnation', k.incarnation,
		'process', k.process, 'number', k.number, 'done', k.done, 'note', encode(k.note, 'base64'))
$$;

-- keys carries out a once.Call. Parts are done in the order of their keys, those of one key as they stand. The lock on
-- the member's row orders the call before or after a raise of the incarnation, and has the commit wait for the standby
-- whatever the parts do.
CREATE FUNCTION mta_cluster.keys(call jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	valid mta_cluster.uint64;
	part  record;
	here  mta_cluster.keys;
	after jsonb[] := array_fill(NULL::jsonb, ARRAY[jsonb_array_length(call->'parts')]);
BEGIN
	PERFORM mta_cluster.durable();
	IF mta_cluster.timeline() <> (call->>'timeline')::numeric THEN
		RETURN '{"elsewhere": true}';
	END IF;
	SELECT m.incarnation INTO valid FROM mta_cluster.members m WHERE m.number = (call->>'node')::int FOR SHARE;
	IF valid IS DISTINCT FROM (call->>'incarnation')::numeric THEN
		RETURN '{"forgotten": true}';
	END IF;
	FOR part IN
		SELECT p.op, decode(p.key, 'base64') AS key, p.node, p.incarnation, p.process, p.number,
			decode(p.note, 'base64') AS note, p.keep, p.n
		FROM ROWS FROM (jsonb_to_recordset(call->'parts') AS (op int, key text, node int, incarnation numeric,
			process numeric, number numeric, note text, keep bigint)) WITH ORDINALITY
			AS p (op, key, node, incarnation, process, number, note, keep, n) ORDER BY 2, p.n
	LOOP
		IF part.op = 0 THEN
			INSERT INTO mta_cluster.keys AS k
				VALUES (part.key, part.node, part.incarnation, part.process, part.number, false, part.note)
				ON CONFLICT (key) DO UPDATE SET node = excluded.node, incarnation = excluded.incarnation,
					process = excluded.process, number = excluded.number, done = false, note = excluded.note
				WHERE (k.node, k.incarnation, k.process, k.number)
						<> (excluded.node, excluded.incarnation, excluded.process, excluded.number)
					AND k.incarnation < (SELECT m.incarnation FROM mta_cluster.members m WHERE m.number = k.node);
		ELSIF part.op = 1 THEN
			UPDATE mta_cluster.keys k SET done = true, note = part.note,
				until = clock_timestamp() + make_interval(secs => part.keep) WHERE k.key = part.key
				AND (k.node, k.incarnation, k.process, k.number)
					= (part.node, part.incarnation, part.process, part.number);
		ELSE
			DELETE FROM mta_cluster.keys k WHERE k.key = part.key
				AND (k.node, k.incarnation, k.process, k.number)
					= (part.node, part.incarnation, part.process, part.number);
		END IF;
		SELECT * INTO here FROM mta_cluster.keys k WHERE k.key = part.key;
		IF FOUND THEN
			after[part.n] := mta_cluster.shown(here);
		END IF;
	END LOOP;
	RETURN jsonb_build_object('rows', to_jsonb(after));
END $$;

-- dropped deletes settled rows whose time is over, up to a number of them, and returns how many it has deleted. A row that
-- a call has locked is left for the next time.
CREATE FUNCTION mta_cluster.dropped(most int) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	n bigint;
BEGIN
	PERFORM mta_cluster.durable();
	DELETE FROM mta_cluster.keys k USING (
		SELECT o.key FROM mta_cluster.keys o WHERE o.done AND o.until < clock_timestamp()
		ORDER BY o.until LIMIT most FOR UPDATE SKIP LOCKED) old
		WHERE k.key = old.key;
	GET DIAGNOSTICS n = ROW_COUNT;
	RETURN to_jsonb(n);
END $$;

-- unsettled are the rows of a node that have no answer.
CREATE FUNCTION mta_cluster.unsettled(at int) RETURNS jsonb LANGUAGE sql AS $$
	SELECT COALESCE(jsonb_agg(mta_cluster.shown(k) ORDER BY k.key), '[]') FROM mta_cluster.keys k
		WHERE k.node = at AND NOT k.done
$$;

DO $$ BEGIN PERFORM mta_cluster.replicated(current_setting('mta_cluster.replicated')::boolean); END $$;
