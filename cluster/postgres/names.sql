-- Version 4: members have the nodeids of their relays, and in plans sums of their settings.
SET LOCAL synchronous_commit = on;
SET LOCAL client_min_messages = warning;

UPDATE mta_cluster.version SET version = 4;

-- NULL: a program that knows none has written the row.
ALTER TABLE mta_cluster.members ADD COLUMN name text, ADD COLUMN plans jsonb;

-- joined writes a member's row, and refuses what an earlier incarnation or process asks for. A process has one life: a
-- copy of its data directory has the same number of the process, and another life.
CREATE OR REPLACE FUNCTION mta_cluster.joined(member jsonb, replicated boolean) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	wanted mta_cluster.members := jsonb_populate_record(NULL::mta_cluster.members, member);
	there  mta_cluster.members;
BEGIN
	PERFORM mta_cluster.durable();
	SELECT * INTO there FROM mta_cluster.members m WHERE m.number = wanted.number FOR UPDATE;
	IF NOT FOUND THEN
		PERFORM mta_cluster.replicated(replicated);
	END IF;
	wanted.forgotten := false;
	wanted.seen := clock_timestamp();
	INSERT INTO mta_cluster.members AS m SELECT wanted.* ON CONFLICT (number) DO UPDATE SET address = excluded.address,
		version = excluded.version, incarnation = excluded.incarnation, process = excluded.process,
		life = excluded.life, forgotten = false, seen = excluded.seen, name = excluded.name, plans = excluded.plans
		WHERE (m.incarnation, m.process) < (excluded.incarnation, excluded.process)
			OR (m.incarnation, m.process, m.life) = (excluded.incarnation, excluded.process, excluded.life);
	IF NOT FOUND AND there.incarnation > wanted.incarnation THEN
		RAISE EXCEPTION 'node % at % has incarnation % there: incarnation % was forgotten', there.number,
			there.address, there.incarnation, wanted.incarnation;
	ELSIF NOT FOUND THEN
		RAISE EXCEPTION 'another process has joined as node %, at %', there.number, there.address;
	END IF;
	RETURN 'true';
END $$;
