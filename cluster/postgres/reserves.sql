-- Version 6: reserves, by which nodes go on after a loss of the database.
SET LOCAL synchronous_commit = on;
SET LOCAL client_min_messages = warning;

UPDATE mta_cluster.version SET version = 6;

-- NULL: a program that knows no reserves has written the row.
ALTER TABLE mta_cluster.members ADD COLUMN on_loss text;

-- A row is written every second. The sum of all 1 / divisor is at most 1.
CREATE TABLE mta_cluster.reserves (
	node        int PRIMARY KEY CHECK (node BETWEEN 1 AND 1023),
	incarnation mta_cluster.uint64 NOT NULL,
	process     mta_cluster.uint64 NOT NULL,
	seq         mta_cluster.uint64 NOT NULL,
	divisor     int NOT NULL CHECK (divisor >= 0), -- 0: there was no room
	timeline    mta_cluster.uint64 NOT NULL,
	beats       mta_cluster.uint64 NOT NULL
) WITH (fillfactor = 25);

-- Who may use the members may use them at once: all nodes read them with each call.
DO $$
DECLARE
	who name;
BEGIN
	FOR who IN SELECT DISTINCT g.grantee FROM information_schema.role_table_grants g
		WHERE g.table_schema = 'mta_cluster' AND g.table_name = 'members' AND g.privilege_type = 'UPDATE'
		AND g.grantee <> current_user
	LOOP
		EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON mta_cluster.reserves TO %s',
			CASE who WHEN 'PUBLIC' THEN 'PUBLIC' ELSE quote_ident(who) END);
	END LOOP;
END $$;

-- wished carries out an owner.Wish as its Apply says. Locks are taken in the order of version, members, reserves and
-- shards. That of the version has nodes get larger parts one after the other, and none while one joins with a program
-- that knows no reserves.
CREATE FUNCTION mta_cluster.wished(wish jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	w     mta_cluster.reserves := jsonb_populate_record(NULL::mta_cluster.reserves, wish);
	was   mta_cluster.reserves;
	grows boolean;
	free  double precision := 0;
BEGIN
	SELECT * INTO was FROM mta_cluster.reserves r WHERE r.node = w.node;
	grows := w.divisor > 0 AND (was.node IS NULL OR was.divisor = 0 OR w.divisor < was.divisor);
	IF grows THEN
		PERFORM v.version FROM mta_cluster.version v FOR UPDATE;
	END IF;
	PERFORM m.number FROM mta_cluster.members m WHERE m.number = w.node AND m.incarnation = w.incarnation FOR SHARE;
	IF NOT FOUND THEN
		RETURN;
	END IF;
	SELECT * INTO was FROM mta_cluster.reserves r WHERE r.node = w.node FOR UPDATE;
	IF was.node IS NOT NULL AND (was.incarnation, was.process, was.seq) >= (w.incarnation, w.process, w.seq) THEN
		RETURN;
	ELSIF w.divisor = 0 THEN
		DELETE FROM mta_cluster.reserves r WHERE r.node = w.node;
		RETURN;
	END IF;
	IF was.node IS NULL OR was.divisor = 0 OR w.divisor < was.divisor THEN
		IF grows AND NOT EXISTS (SELECT FROM mta_cluster.members m WHERE NOT m.forgotten AND m.on_loss IS NULL) THEN
			SELECT 1 - COALESCE(sum(1::double precision / r.divisor), 0) INTO free
				FROM mta_cluster.reserves r WHERE r.node <> w.node AND r.divisor > 0;
		END IF;
		IF free < 1e-4 THEN
			w.divisor := COALESCE(was.divisor, 0);
		ELSE
			w.divisor := greatest(w.divisor, ceil(1 / free - 1e-6));
			IF was.divisor > 0 THEN
				w.divisor := least(w.divisor, was.divisor);
			END IF;
		END IF;
	END IF;
	INSERT INTO mta_cluster.reserves AS r SELECT w.* ON CONFLICT (node) DO UPDATE SET
		incarnation = excluded.incarnation, process = excluded.process, seq = excluded.seq,
		divisor = excluded.divisor, timeline = excluded.timeline, beats = excluded.beats;
END $$;

-- beaten is shards, with a wish or null, and has the reserves of all nodes.
CREATE FUNCTION mta_cluster.beaten(call jsonb, wish jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	result jsonb;
BEGIN
	PERFORM mta_cluster.durable();
	IF wish <> 'null' THEN
		PERFORM mta_cluster.wished(wish);
	END IF;
	result := mta_cluster.shards(call);
	RETURN result || jsonb_build_object('reserves', (SELECT jsonb_agg(r) FROM mta_cluster.reserves r));
END $$;

-- joined is that of version 4, and refuses a program that knows no reserves while others have any.
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
		on_loss = excluded.on_loss
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

-- forgotten is that of version 1, and refuses a node that may go on by a part of each limit, unless it is dead.
CREATE OR REPLACE FUNCTION mta_cluster.forgotten(node int, dead boolean) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	there mta_cluster.members;
	ago   int;
	part  int;
BEGIN
	PERFORM mta_cluster.durable();
	SELECT * INTO there FROM mta_cluster.members m WHERE m.number = forgotten.node FOR UPDATE;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'the cluster has no node %', node;
	ELSIF there.forgotten THEN
		RETURN 'false';
	END IF;
	ago := extract(epoch FROM clock_timestamp() - there.seen);
	SELECT r.divisor INTO part FROM mta_cluster.reserves r WHERE r.node = forgotten.node AND r.divisor > 0;
	IF ago < 20 AND NOT dead THEN
		RAISE EXCEPTION 'node % at % answered % s ago: stop it and wait for 20 s; --dead if its machine is off', node,
			there.address, ago;
	ELSIF part IS NOT NULL AND NOT dead THEN
		RAISE EXCEPTION 'node % at % has on_loss = "part": it may be cut off, and use 1/% of each limit; --dead if its machine is off',
			node, there.address, part;
	END IF;
	UPDATE mta_cluster.members m SET incarnation = there.incarnation + 1, process = 0, life = 0, forgotten = true
		WHERE m.number = forgotten.node;
	DELETE FROM mta_cluster.reserves r WHERE r.node = forgotten.node;
	RETURN 'true';
END $$;
