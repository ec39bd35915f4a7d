-- Version 7: rows of members show how far their data directories are, and machines that are off hold nothing.
SET LOCAL synchronous_commit = on;
SET LOCAL client_min_messages = warning;

UPDATE mta_cluster.version SET version = 7;

-- noted, boot: NULL: a program that knows none has written the row. dead: what earlier incarnations had has ended.
ALTER TABLE mta_cluster.members ADD COLUMN noted bigint, ADD COLUMN boot mta_cluster.uint64,
	ADD COLUMN dead mta_cluster.uint64;

-- durable is that of version 1, and bounds for how long the server waits for a client that is gone.
CREATE OR REPLACE FUNCTION mta_cluster.durable() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('synchronous_commit', 'on', true), set_config('lock_timeout', '2s', true),
		set_config('tcp_user_timeout', '10s', true), set_config('client_min_messages', 'warning', true);
END $$;

-- joined is that of version 6, with what version 7 adds.
CREATE OR REPLACE FUNCTION mta_cluster.joined(member jsonb, replicated boolean) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	wanted mta_cluster.members := jsonb_populate_record(NULL::mta_cluster.members, member);
	there  mta_cluster.members;
	others int[];
BEGIN
	PERFORM mta_cluster.durable();
	IF wanted.on_loss IS NULL THEN
		PERFORM v.version FROM mta_cluster.version v FOR UPDATE;
		SELECT array_agg(r.node ORDER BY r.node) INTO others FROM mta_cluster.reserves r
			WHERE r.divisor > 0 AND r.node <> wanted.number;
		IF others IS NOT NULL THEN
			RAISE EXCEPTION 'node % has a version of mta that does not know on_loss = "part", which nodes % have: upgrade it',
				wanted.number, array_to_string(others, ', ');
		END IF;
	END IF;
	SELECT * INTO there FROM mta_cluster.members m WHERE m.number = wanted.number FOR UPDATE;
	IF NOT FOUND THEN
		PERFORM mta_cluster.replicated(replicated);
	END IF;
	wanted.forgotten := false;
	wanted.seen := clock_timestamp();
	INSERT INTO mta_cluster.members AS m SELECT wanted.* ON CONFLICT (number) DO UPDATE SET address = excluded.address,
		version = excluded.version, incarnation = excluded.incarnation, process = excluded.process,
		life = excluded.life, forgotten = false, seen = excluded.seen, name = excluded.name, plans = excluded.plans,
		on_loss = excluded.on_loss, noted = excluded.noted, boot = excluded.boot
		WHERE (m.incarnation, m.process) < (excluded.incarnation, excluded.process)
			OR (m.incarnation, m.process, m.life) = (excluded.incarnation, excluded.process, excluded.life);
	IF NOT FOUND AND there.incarnation > wanted.incarnation THEN
		RAISE EXCEPTION 'node % at % has incarnation % there: incarnation % was forgotten', there.number,
			there.address, there.incarnation, wanted.incarnation;
	ELSIF NOT FOUND THEN
		RAISE EXCEPTION 'another process has joined as node %, at %', there.number, there.address;
	END IF;
	IF wanted.on_loss IS NULL THEN
		DELETE FROM mta_cluster.reserves r WHERE r.node = wanted.number;
	END IF;
	RETURN 'true';
END $$;

-- forgotten is that of version 6. dead: the node's machine is off, so that all it had is free, also if it was forgotten
-- before. Its shards have no owner, and are taken at once; after a reset they wait for a term all the same.
CREATE OR REPLACE FUNCTION mta_cluster.forgotten(node int, dead boolean) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	there mta_cluster.members;
	done  boolean;
	ago   int;
	part  int;
BEGIN
	PERFORM mta_cluster.durable();
	SELECT * INTO there FROM mta_cluster.members m WHERE m.number = forgotten.node FOR UPDATE;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'the cluster has no node %', node;
	END IF;
	done := NOT there.forgotten;
	IF done THEN
		ago := extract(epoch FROM clock_timestamp() - there.seen);
		SELECT r.divisor INTO part FROM mta_cluster.reserves r WHERE r.node = forgotten.node AND r.divisor > 0;
		IF ago < 20 AND NOT dead THEN
			RAISE EXCEPTION 'node % at % answered % s ago: stop it and wait for 20 s; --dead if its machine is off', node,
				there.address, ago;
		ELSIF part IS NOT NULL AND NOT dead THEN
			RAISE EXCEPTION 'node % at % has on_loss = "part": it may be cut off, and use 1/% of each limit; --dead if its machine is off',
				node, there.address, part;
		END IF;
		there.incarnation := there.incarnation + 1;
		UPDATE mta_cluster.members m SET incarnation = there.incarnation, process = 0, life = 0, forgotten = true
			WHERE m.number = forgotten.node;
		DELETE FROM mta_cluster.reserves r WHERE r.node = forgotten.node;
	END IF;
	IF forgotten.dead THEN
		UPDATE mta_cluster.members m SET dead = there.incarnation WHERE m.number = forgotten.node;
		PERFORM s.shard FROM mta_cluster.shards s WHERE s.node = forgotten.node ORDER BY s.shard FOR UPDATE;
		UPDATE mta_cluster.shards s SET node = 0, incarnation = 0, boot = 0, beat = s.beat + 1
			WHERE s.node = forgotten.node AND s.incarnation > 0 AND s.incarnation < there.incarnation;
	END IF;
	RETURN to_jsonb(done);
END $$;

-- shards is that of version 1, and answers with no more of a book than anybody may have written: one entry too many of
-- each, and one octet of a name.
CREATE OR REPLACE FUNCTION mta_cluster.shards(call jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
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
		'books', (SELECT jsonb_agg(jsonb_build_object('shard', b.shard, 'name', encode(substr(b.name, 1, 257), 'base64'),
			'node', b.node, 'n', ARRAY[b.n1, b.n2, b.n3, b.n4]))
			FROM unnest(taken) t, LATERAL (SELECT * FROM mta_cluster.books k WHERE k.shard = t LIMIT 50001) b));
END $$;
