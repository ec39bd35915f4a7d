package cluster

import (
	"fmt"
	"os"
	"testing"
	"time"

	"example.org/mta/cluster/term"
)

// full is the large form, an hour of 100 nodes with 210 limits: MTA_CLUSTER=full, some minutes for
// each run.
var full = os.Getenv("MTA_CLUSTER") == "full"

// everything is all faults at once, with a crash each minute.
var everything = Faults{Crash: time.Minute, Leave: 3 * time.Minute, Pause: 4 * time.Minute, Island: 12 * time.Minute,
	Cut: 6 * time.Minute, Failover: 12 * time.Minute,
	Lag: 5 * time.Minute, Lost: .02, Late: .01, Twice: .02, Unknown: .02}

// config is that of a run in CI, or of the large form.
func config(seed uint64, nodes int, faults Faults) Config {
	cfg := Config{Seed: seed, Nodes: nodes, Limits: 60, Keys: 5000, Warm: 2 * time.Minute, Length: 28 * time.Minute, Faults: faults,
		Term: term.Term{Length: 3 * time.Minute, Drift: 200e-6}, Turn: time.Minute}
	if nodes > 10 {
		cfg.Limits, cfg.Length = 20, 13*time.Minute
	}
	if full {
		cfg.Limits, cfg.Length = 210, time.Hour
		cfg.Keys = 10000 * nodes
	}
	return cfg
}

// seeds is how many of the large form's n seeds are run.
func seeds(n uint64) uint64 {
	if full {
		return n
	}
	return n / 2
}

// try runs a cluster and has nothing be over anything.
func try(t *testing.T, cfg Config) Report {
	t.Helper()
	r := Run(cfg)
	t.Logf("seed %d, %d nodes: %v", cfg.Seed, cfg.Nodes, r)
	for _, f := range r.Faults {
		t.Error(f)
	}
	return r
}

// atLeast has a part of what was wanted be used.
func atLeast(t *testing.T, r Report, percent float64) {
	t.Helper()
	if min(r.Events, r.Connections) < percent {
		t.Errorf("used: %.1f %% of the events, %.1f %% of the connections, want %.0f %%", r.Events, r.Connections,
			percent)
	}
	if r.Calls > 1.001 {
		t.Errorf("%.2f calls a second and node", r.Calls)
	}
}

func TestACalmClusterUsesItsLimits(t *testing.T) {
	for i, nodes := range []int{3, 10, 100} {
		atLeast(t, try(t, config(uint64(i), nodes, Faults{})), 97)
	}
}

func TestCrashesCostLittle(t *testing.T) {
	for seed := range uint64(2) {
		atLeast(t, try(t, config(seed, 3, Faults{Crash: 10 * time.Minute})), 88)
		atLeast(t, try(t, config(seed, 10, Faults{Crash: 10 * time.Minute})), 93)
		if full {
			atLeast(t, try(t, config(seed, 100, Faults{Crash: 10 * time.Minute})), 93)
		}
	}
}

// A node that reaches the engine and some of the others asks an owner that it does not reach through one of these.
func TestNodesCutOffFromEachOther(t *testing.T) {
	for _, nodes := range []int{3, 10} {
		atLeast(t, try(t, config(1, nodes, Faults{Cut: 5 * time.Minute})), 97)
	}
}

// A shutdown costs what the node itself would have used, and some seconds of asking new owners.
func TestShutdownsCostLittle(t *testing.T) {
	for _, nodes := range []int{3, 10} {
		atLeast(t, try(t, config(1, nodes, Faults{Leave: 2 * time.Minute})), 97)
	}
}

func TestNothingIsOverWhateverFails(t *testing.T) {
	for seed := range seeds(4) {
		for _, nodes := range []int{3, 10} {
			try(t, config(seed, nodes, everything))
		}
	}
	try(t, config(9, 100, everything))
}

// What a machine had that is confirmed to be off is used by others, and nothing is over.
func TestMachinesThatAreOff(t *testing.T) {
	for seed := range uint64(3) {
		for _, nodes := range []int{3, 10} {
			faults := everything
			faults.Dead = true
			cfg := config(seed, nodes, faults)
			if seed == 2 {
				cfg.Reserves = nodes
			}
			try(t, cfg)
		}
	}
	cfg := config(1, 3, Faults{Crash: 5 * time.Minute, Wipe: true})
	without := try(t, cfg)
	cfg.Faults.Dead = true
	if with := try(t, cfg); with.Events < without.Events+1 {
		t.Errorf("used: %.1f %% of the events with machines known to be off, and %.1f %% without", with.Events,
			without.Events)
	}
}

// Nodes take other limits at other moments. They are never over the largest; settle after the last change exactly the
// smallest of those that want a limit is used.
func TestLimitsThatChange(t *testing.T) {
	for seed := range uint64(2) {
		for _, nodes := range []int{3, 10} {
			cfg := config(seed, nodes, Faults{Reload: 4 * time.Minute})
			cfg.Settle = 12 * time.Second
			r := try(t, cfg)
			atLeast(t, r, 97)
			noneIdle(t, r)
		}
	}
}

// The same, while everything fails. When nothing fails any more, no limit stays at what it was.
func TestLimitsThatChangeWhateverFails(t *testing.T) {
	faults := everything
	faults.Reload = 2 * time.Minute
	for seed := range seeds(4) {
		for _, nodes := range []int{3, 10} {
			cfg := config(seed, nodes, faults)
			cfg.Calm = cfg.Term.Length + 4*time.Minute
			if seed%2 > 0 {
				cfg.Reserves, cfg.Faults.EngineAway = nodes, 8*time.Minute
			}
			noneIdle(t, try(t, cfg))
		}
	}
}

// noneIdle has each limit be used while nothing changed.
func noneIdle(t *testing.T, r Report) {
	t.Helper()
	for _, l := range r.Idle {
		t.Error(l)
	}
}

func TestAnEngineThatIsAway(t *testing.T) {
	faults := everything
	faults.EngineAway = 30 * time.Minute
	cfg := config(5, 5, faults)
	cfg.Length = time.Hour
	try(t, cfg)
}

// Nodes that go on after a loss of the engine are over nothing, whatever fails; some of them wait in some runs.
func TestNodesThatGoOnByTheirParts(t *testing.T) {
	for seed := range seeds(6) {
		for _, nodes := range []int{3, 10} {
			faults := everything
			if seed%2 > 0 {
				faults.Reload = 2 * time.Minute
			}
			cfg := config(seed, nodes, faults)
			if cfg.Reserves = nodes; seed%3 == 2 {
				cfg.Reserves = nodes - 1
			}
			try(t, cfg)
		}
	}
	faults := everything
	faults.EngineAway, faults.Crash, faults.Leave = 30*time.Minute, 20*time.Minute, 0
	for _, nodes := range []int{3, 10} {
		cfg := config(uint64(nodes), nodes, faults)
		cfg.Length, cfg.Reserves = time.Hour, nodes
		try(t, cfg)
	}
}

// What nodes use while the engine is away is what of their parts is wanted.
func TestPartsAreUsed(t *testing.T) {
	for _, nodes := range []int{3, 10} {
		cfg := config(1, nodes, Faults{EngineAway: 30 * time.Minute})
		cfg.Length, cfg.Reserves = time.Hour, nodes
		if r := try(t, cfg); min(r.AwayEvents, r.AwayConnections) < 40 {
			t.Errorf("used while the engine was away: %.1f %% of the events, %.1f %% of the connections", r.AwayEvents,
				r.AwayConnections)
		}
	}
	for _, nodes := range []int{3, 10} {
		cfg := config(1, nodes, Faults{Crash: 10 * time.Minute})
		cfg.Reserves = nodes
		atLeast(t, try(t, cfg), 88)
	}
}

// A failover that loses acknowledged writes is noticed by all that have seen them.
func TestLostWritesAreNoticed(t *testing.T) {
	cfg := config(6, 10, Faults{Unsafe: true})
	if r := try(t, cfg); r.Halted != cfg.Nodes {
		t.Errorf("%d of %d nodes have noticed", r.Halted, cfg.Nodes)
	}
}

func TestARunIsRepeatable(t *testing.T) {
	cfg := config(1, 5, everything)
	cfg.Length = 5 * time.Minute
	if a, b := fmt.Sprint(Run(cfg)), fmt.Sprint(Run(cfg)); a != b {
		t.Errorf("first  %s\nsecond %s", a, b)
	}
}
