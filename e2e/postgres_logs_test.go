package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"example.org/mta/cluster/postgres"
	"example.org/mta/cluster/spool"
	"example.org/mta/cluster/spool/spooltest"
)

// logEditor edits rows of logs, as a superuser can.
type logEditor struct {
	*testing.T
	*database
}

func (d logEditor) Damage(log, entry uint64, data bool) error {
	column := map[bool]string{false: "changes", true: "data"}[data]
	return d.try(d.T, fmt.Sprintf("UPDATE mta_cluster.entries SET %[1]s = set_byte(%[1]s, octet_length(%[1]s) - 1, "+
		"get_byte(%[1]s, octet_length(%[1]s) - 1) # 1) WHERE log = %d AND n = %d", column, log, entry))
}

func (d logEditor) Lose(log, last uint64) error {
	return d.try(d.T, fmt.Sprintf("DELETE FROM mta_cluster.entries WHERE log = %d AND n > %d; "+
		"UPDATE mta_cluster.logs SET last = %[2]d WHERE log = %[1]d", log, last))
}

func (d *database) keepsLogs(t *testing.T, dsn string) {
	spooltest.Run(t, func(t *testing.T) spooltest.World {
		d.schema(t)
		e := open(t, dsn, false)
		return spooltest.World{Sealer: e, Editor: logEditor{t, d}}
	})
}

func TestPostgresKeepsTheRulesOfLogs(t *testing.T) {
	parallel(t)
	primary, _ := newPair(t)
	t.Run("directly", func(t *testing.T) { primary.keepsLogs(t, primary.dsn("mta", "postgres")) })
	t.Run("by PgBouncer", func(t *testing.T) { primary.keepsLogs(t, newBouncer(t, primary)) })
	if got := primary.ask(t, "SELECT string_agg(attname, ' ' ORDER BY attname) FROM pg_attribute "+
		"WHERE attrelid = 'mta_cluster.entries'::regclass AND attnum > 0 AND attstorage = 'e'"); got != "changes data" {
		t.Errorf("the server compresses no %q", got)
	}
}

// TestPostgresAppendsOnce has appends end with an unknown outcome, in each way in which they can.
func TestPostgresAppendsOnce(t *testing.T) {
	parallel(t)
	primary, standby := newPair(t)
	primary.schema(t)
	direct := open(t, primary.dsn("mta", "postgres"), false)
	if err := direct.Join(t.Context(), postgres.Member{Number: 1, Incarnation: 1, Address: "mx"}); err != nil {
		t.Fatal(err)
	}
	p := newCutter(t, "127.0.0.1:"+primary.port)
	e := open(t, strings.Replace(primary.dsn("mta", "postgres"), primary.port, portOf(p.address), 1), false)
	l, err := spool.Open(t.Context(), e, spool.Claim{Node: 1, Next: 1})
	if err != nil {
		t.Fatal(err)
	}
	entry := uint64(0)
	// appends appends an entry, in spite of what happens until the log notes a fault with these words.
	appends := func(words string, end func()) {
		t.Helper()
		entry++
		done := make(chan error, 1)
		go func() { done <- l.Append(t.Context(), entry, nil, []byte("mail")) }()
		eventually(t, patience, func() error {
			select {
			case err := <-done:
				t.Fatalf("the entry is appended: %v", err)
			default:
			}
			if err := l.Fault(); err == nil || !strings.Contains(err.Error(), words) {
				return fmt.Errorf("the fault is %w, want %q", err, words)
			}
			return nil
		})
		end()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		standby.comes(t, "SELECT max(last) || ' ' || count(*) FROM mta_cluster.logs JOIN mta_cluster.entries USING (log)",
			fmt.Sprint(entry, entry)) // it has flushed the entry, and applies it soon
	}
	p.cut.Store(true)
	appends("unknown", func() { p.cut.Store(false) })

	standby.end()
	appends("lock timeout", func() { // it waits for the standby, and the next one for that
		first := primary.ask(t, waiting)
		primary.ask(t, "SELECT pg_cancel_backend("+first+")") // the row shows, and the standby has it not
		primary.comes(t, "SELECT count(*) FROM ("+waiting+") w WHERE pid <> "+first, "1")
		standby.begin(t)
	})

	primary.end()
	appends("connect", func() { primary.begin(t) })

	again := open(t, primary.dsn("mta", "postgres"), false) // the other one has connections that are gone
	later, err := spool.Open(t.Context(), again, spool.Claim{Node: 1, Log: 1, Session: 1, Next: 2})
	if err != nil {
		t.Fatal(err)
	}
	taken := (*spool.Taken)(nil)
	if err := l.Append(t.Context(), entry+1, nil, nil); !errors.As(err, &taken) || taken.Lost() || later.Opened().Last != entry {
		t.Errorf("an earlier process appends: %v; the later one has opened %+v", err, later.Opened())
	}
}
