package mta

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/mta/lab/sink"
	"example.org/mta/mta/alarm"
	"example.org/mta/warmup"
)

// TestTheLedgerIsDamaged: in nine ways, some with the second copy gone too. The relay starts, says so,
// keeps what there was, takes and delivers mail, and passes no cap by what it can know.
func TestTheLedgerIsDamaged(t *testing.T) {
	rewrite := func(change func(b []byte) []byte) func(path string) error {
		return func(path string) error {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return os.WriteFile(path, change(b), 0o600)
		}
	}
	page := os.Getpagesize()
	alone := func(damage func(string) error) func(string) error { // without the second copy
		return func(path string) error {
			if err := os.Remove(filepath.Join(filepath.Dir(path), "destdb")); err != nil {
				return err
			}
			return damage(path)
		}
	}
	for name, damage := range map[string]func(path string) error{
		"cut short":       rewrite(func(b []byte) []byte { return b[:len(b)/2] }),
		"zeroed":          rewrite(func(b []byte) []byte { clear(b); return b }),
		"empty":           rewrite(func([]byte) []byte { return nil }),
		"missing":         os.Remove,
		"unreadable":      nil,
		"its heads":       rewrite(func(b []byte) []byte { clear(b[:2*page]); return b }),
		"its pages":       rewrite(func(b []byte) []byte { clear(b[2*page:]); return b }),
		"a record":        rewrite(rotRecords),
		"other text":      rewrite(func(b []byte) []byte { return []byte(strings.Repeat("Dear Sir or Madam, ", 9000)) }),
		"zeroed, alone":   alone(rewrite(func(b []byte) []byte { clear(b); return b })),
		"missing, alone":  alone(os.Remove),
		"a record, alone": alone(rewrite(rotRecords)),
	} {
		if name == "unreadable" {
			damage = func(path string) error {
				if err := os.Remove(path); err != nil {
					return err
				}
				return os.MkdirAll(filepath.Join(path, "lost+found"), 0o700)
			}
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			damageLedger(t, name, damage)
		})
	}
}

// rotRecords changes a bit of each record: each has the provider's name.
func rotRecords(b []byte) []byte {
	text := string(b)
	for at := 0; ; {
		i := strings.Index(text[at:], "other")
		if i < 0 {
			return b
		}
		at += i + 1
		b[at] ^= 2
	}
}

const (
	damageDay   = 25
	damageStage = 2
)

func damageLedger(t *testing.T, name string, damage func(path string) error) {
	w := newWorldWith(t, Options{}, sink.Config{}, fmt.Sprintf(`
		defaults { smtp_port = PORT }
		source "new-1" { address = "127.0.0.77" }
		source "old-1" { address = "127.0.0.78" }
		plan "live" {
			health {
				pause { sample = 0 }
			}
			stage {
				hourly = 10
				daily = 20
			}
			stage {
				hourly = 20
				daily = %d
			}
			stage {
				hourly = 100
				daily = 2000
			}
		}
		pool "default" {
			shared = ["old-1"]
			dedicated "new-1" { plan = "live" }
		}`, damageDay), shortHours)
	state := func() warmup.Status { s, _ := w.warm.Controller().Status("127.0.0.77"); return s }
	w.until("the warm-up has begun", func() bool { return state().Stage > 0 })
	dayEnds := state().DayEnds
	if err := w.warm.Do(t.Context(), "127.0.0.77", warmup.SetStage(damageStage)); err != nil {
		t.Fatal(err)
	}
	stop, sent := make(chan struct{}), make(chan int)
	go func() {
		n, err := w.load(stop)
		if err != nil {
			t.Error(err)
		}
		sent <- n
	}()
	w.until("the day's cap is used", func() bool { return state().SentDay >= damageDay })
	close(stop)
	before := <-sent
	w.until("all has arrived", func() bool { return len(w.recorder.Deliveries()) == before })
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	if err := damage(filepath.Join(w.cfg.DataDir, "warmup.db")); err != nil {
		t.Fatal(err)
	}

	w.start()
	w.until("the warm-up goes on", func() bool { return state().Stage > 0 })
	stage := state().Stage
	// Within a day the stage stays, whatever was known of the day's begin. On a slow machine the day may be over.
	sameDay := func() bool { return time.Now().Before(dayEnds.Add(-time.Second)) }
	if stage != damageStage && (sameDay() || stage != damageStage+1) {
		t.Errorf("stage %d, want %d", stage, damageStage)
	}
	for range 30 {
		w.send("ann@client.example", letter, "bob@box.example")
	}
	w.until("all has arrived", func() bool { return len(w.recorder.Deliveries()) == before+30 })
	if n := len(w.fromWarming()); n > damageDay && sameDay() {
		t.Errorf("%d from the warming source in a day of %d", n, damageDay)
	}
	if why := w.warm.Trouble(); !strings.Contains(why, "the warm-up ledger was lost") || !strings.Contains(why, fmt.Sprintf("goes on at stage %d", stage)) || !w.alarms.On(alarm.Warmup) {
		t.Errorf("the alarm says %q", why)
	}
	aside, _ := filepath.Glob(filepath.Join(w.cfg.DataDir, "warmup.db.damaged-*"))
	if missing := strings.HasPrefix(name, "missing"); missing != (len(aside) == 0) {
		t.Errorf("set aside: %v", aside)
	}
}
