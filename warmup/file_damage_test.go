package warmup

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
)

func tenStages() *Plan {
	p := DefaultPlan()
	for i := range int64(10) {
		p.Stages = append(p.Stages, Stage{Caps: Caps{Hourly: 100 * (i + 1), Daily: 800 * (i + 1)}})
	}
	p.StartStage = 5
	return &p
}

// put writes a state, which sends n recipients first.
func put(t *testing.T, s *File, name string, n int64) {
	t.Helper()
	rs, now, err := s.Claim(t.Context(), "a", time.Second, []Key{{Name: name}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := tenStages()
	state := NewState(p, now)
	if rs[0].Value != nil {
		if err := state.Decode(rs[0].Value); err != nil {
			t.Fatal(err)
		}
	}
	state.Advance(p, now)
	i := state.Provider(p, "google")
	state.Count(&state.Providers[i], n)
	if ok, err := s.Write(t.Context(), []Change{{Name: name, Fence: rs[0].Fence, Version: rs[0].Version, Value: state.Append(nil), Release: true}}, nil); err != nil || !ok[0] {
		t.Fatal(ok, err)
	}
}

// get reads a state and brings it up to now.
func get(t *testing.T, s *File, name string) (*State, Instant) {
	t.Helper()
	rs, now, err := s.Claim(t.Context(), "a", time.Second, []Key{{Name: name}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	state := &State{}
	if rs[0].Version == 0 {
		return nil, now
	}
	if err := state.Decode(rs[0].Value); err != nil {
		t.Fatal(err)
	}
	state.Advance(tenStages(), now)
	return state, now
}

func TestADamagedFileIsSetAside(t *testing.T) {
	for name, damage := range map[string]func(path string, b []byte) error{
		"cut":      func(path string, b []byte) error { return os.Truncate(path, int64(len(b)/2)) },
		"zeroed":   func(path string, b []byte) error { clear(b); return os.WriteFile(path, b, 0o600) },
		"empty":    func(path string, b []byte) error { return os.Truncate(path, 0) },
		"a folder": func(path string, b []byte) error { os.Remove(path); return os.Mkdir(path, 0o700) },
	} {
		path := filepath.Join(t.TempDir(), "warmup.db")
		s := openFile(t, path, nil)
		if s.Damage() != nil || !s.Begun() {
			t.Fatalf("%s: a new file: %v, begun %v", name, s.Damage(), s.Begun())
		}
		put(t, s, "ip", 10)
		s.Close()
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := damage(path, b); err != nil {
			t.Fatal(err)
		}
		s = openFile(t, path, nil)
		if s.Damage() == nil || s.Begun() {
			t.Errorf("%s: %v, begun %v", name, s.Damage(), s.Begun())
		}
		if old, _ := get(t, s, "ip"); old != nil {
			t.Errorf("%s: a record has survived", name)
		}
		if aside, _ := filepath.Glob(path + ".damaged-*"); len(aside) != 1 {
			t.Errorf("%s: set aside: %v", name, aside)
		}
		put(t, s, "ip", 10)
	}
}

func TestADamagedRecordIsDropped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "warmup.db")
	s := openFile(t, path, nil)
	put(t, s, "good", 10)
	put(t, s, "rotten", 10)
	err := s.db.Update(func(tx *bolt.Tx) error {
		b := tx.Bucket(recordsBucket)
		v := append([]byte(nil), b.Get([]byte("rotten"))...)
		v[len(v)-3] ^= 1
		return b.Put([]byte("rotten"), v)
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = openFile(t, path, nil)
	if s.Damage() == nil || !strings.Contains(s.Damage().Error(), "rotten") {
		t.Errorf("damage: %v", s.Damage())
	}
	if old, _ := get(t, s, "rotten"); old != nil {
		t.Error("the damaged record is there")
	}
	if old, _ := get(t, s, "good"); old == nil || old.Total.Day != 10 {
		t.Errorf("the sound record: %+v", old)
	}
	if aside, _ := filepath.Glob(path + ".damaged-*"); len(aside) != 1 {
		t.Errorf("set aside: %v", aside)
	}
}

// TestCutWhileOpen: bbolt would fault; it is an error.
func TestCutWhileOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "warmup.db")
	s := openFile(t, path, nil)
	put(t, s, "ip", 10)
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	_, _, err := s.Claim(t.Context(), "a", time.Second, []Key{{Name: "ip"}}, nil)
	if err == nil {
		_, err = s.Write(t.Context(), []Change{{Name: "ip", Fence: s.keys["ip"].fence, Version: 1, Value: []byte("x")}}, nil)
	}
	if err == nil {
		t.Error("nobody noticed")
	}
}

// TestFilesWithoutSumsAreRead is about files as they were before.
func TestFilesWithoutSumsAreRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "warmup.db")
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	value := NewState(tenStages(), 1_700_000_000_000).Append(nil)
	err = db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucket(oldBucket)
		if err != nil {
			return err
		}
		r := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, 7), 3)
		return b.Put([]byte("ip"), append(r, value...))
	})
	if err != nil {
		t.Fatal(err)
	}
	db.Close()
	for range 2 {
		s := openFile(t, path, nil)
		rs, _, err := s.Claim(t.Context(), "a", time.Second, []Key{{Name: "ip"}}, nil)
		if err != nil || rs[0].Version != 3 || string(rs[0].Value) != string(value) || s.Damage() != nil {
			t.Errorf("version %d, %v; damage %v", rs[0].Version, err, s.Damage())
		}
		s.Close()
	}
}

// TestAWrongClockHeals: a clock that is ten years ahead at one start costs no stage when it is right
// again, and reopens no window.
func TestAWrongClockHeals(t *testing.T) {
	right := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, ahead := range []time.Duration{10 * 365 * 24 * time.Hour, 30 * 24 * time.Hour} {
		path := filepath.Join(t.TempDir(), "warmup.db")
		wall := right
		at := func(d time.Duration) *File {
			t.Helper()
			wall = right.Add(d)
			w := wall
			return openFile(t, path, func() time.Time { return w })
		}
		s := at(0)
		put(t, s, "ip", 300)
		s.Close()

		s = at(ahead)
		put(t, s, "ip", 50) // idle for so long: it has gone back to the first stage
		put(t, s, "newcomer", 20)
		if wrong, _ := get(t, s, "ip"); wrong.Stage != 0 || wrong.Total.Day != 50 {
			t.Fatalf("under the wrong clock: stage %d, %d today", wrong.Stage+1, wrong.Total.Day)
		}
		s.Close()

		s = at(30 * time.Minute)
		healed, now := get(t, s, "ip")
		if now.Time() != wall {
			t.Errorf("the store's clock is %v, the machine's %v", now.Time(), wall)
		}
		if healed.Stage != 4 || healed.Begin.Time() != right {
			t.Errorf("stage %d, begun %v; want 5 and %v", healed.Stage+1, healed.Begin.Time(), right)
		}
		if healed.Total.Hour < healed.Caps.Hourly || healed.Total.Day < healed.Caps.Daily || healed.Total.Sliding < healed.Caps.Hourly {
			t.Errorf("%d of %d this hour, %d of %d today: what was sent under the wrong clock could be sent again",
				healed.Total.Hour, healed.Caps.Hourly, healed.Total.Day, healed.Caps.Daily)
		}
		put(t, s, "ip", 0)
		if young, now := get(t, s, "newcomer"); young.Begin > now || young.Total.Day < young.Caps.Daily {
			t.Errorf("who began under the wrong clock: begun %v, now %v", young.Begin.Time(), now.Time())
		}
		s.Close()

		s = at(25 * time.Hour) // and days go on as they should
		later, now := get(t, s, "ip")
		if now.Time() != wall || later.Total.Day != 0 {
			t.Errorf("a day later: %v, %d sent", now.Time(), later.Total.Day)
		}
		s.Close()
	}
}
