package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"example.org/mta/operator/api"
)

// mta runs a command of the binary with further variables in its environment, and returns all that it prints, and its
// exit status.
func mta(env []string, args ...string) (string, error) {
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// cluster is a database with a standby, and the authority of a cluster, made by the commands of docs/cluster.md.
type cluster struct {
	*testing.T
	primary, standby *database
	dir              string
	env              []string
	block            string // of a relay's configuration
}

// section is the one of docs/cluster.md that has them.
const page, section = "../docs/cluster.md", "Three nodes"

func newCluster(t *testing.T) *cluster {
	c := &cluster{T: t, dir: scratch(t), block: pageCode(t, page, section, "hcl")[0]}
	c.primary, c.standby = newPair(t)
	c.primary.ask(t, "DROP ROLE mta")
	here := strings.NewReplacer("host=db1,db2", "host=127.0.0.1 port="+c.primary.port, "verify-full", "disable")
	sql, sh := pageCode(t, page, section, "sql"), pageCode(t, page, section, "sh")
	for statement := range strings.SplitSeq(strings.TrimSpace(sql[0]), ";") { // a database is not made in a transaction
		c.primary.ask(t, statement)
	}
	if err := os.Symlink(binary, c.dir+"/mta"); err != nil {
		t.Fatal(err)
	}
	runClient(t, "", "sh", "-ec", here.Replace("cd "+c.dir+"; PATH=.:$PATH\n"+strings.Join(sh, "")))
	if _, err := c.primary.queryOf(t, "mta", sql[1]); err != nil {
		t.Fatal(err)
	}
	c.env = []string{"MTA_CLUSTER_DATABASE=" + c.primary.dsn("mta", "mta")}
	return c
}

// does runs a command that succeeds and prints these words; fails one that fails.
func (c *cluster) does(words string, args ...string) {
	c.Helper()
	if out, err := mta(c.env, args...); err != nil || !strings.Contains(out, words) {
		c.Fatalf("mta %s prints %q, %v; want %q", strings.Join(args, " "), out, err, words)
	}
}

func (c *cluster) fails(words string, args ...string) {
	c.Helper()
	if out, err := mta(c.env, args...); err == nil || !strings.Contains(out, words) {
		c.Errorf("mta %s prints %q, %v; want %q", strings.Join(args, " "), out, err, words)
	}
}

// relay makes one with the certificate of a node, and an empty data directory.
func (c *cluster) relay(node int) *relay {
	c.Helper()
	block := strings.NewReplacer("10.0.0.1:2571", freeAddress(c.T), "/etc/mta", c.dir+"/ca", "node-1",
		fmt.Sprintf("node-%d", node)).Replace(c.block)
	r := newRelay(c.T, "127.0.0.1:1", "25", fmt.Sprintf("nodeid = \"relay-%d\"\n%s", node, block))
	r.env = c.env
	return r
}

// sees waits until a relay's view of the cluster is as wanted: want returns "", or what is not.
func (c *cluster) sees(r *relay, want func(api.Cluster) string) {
	c.Helper()
	eventually(c.T, patience, func() error {
		out, err := r.try("cluster", "status", "--json")
		var s api.Cluster
		if err == nil {
			err = json.Unmarshal([]byte(out), &s)
		}
		if err != nil {
			return fmt.Errorf("mta cluster status prints %s: %w", out, err)
		} else if lacks := want(s); lacks != "" {
			return fmt.Errorf("%s: %s", lacks, out)
		}
		return nil
	})
}

func TestACluster(t *testing.T) {
	parallel(t)
	c := newCluster(t)
	c.block = strings.Replace(c.block, "cluster {", "cluster {\n  on_loss = \"part\"", 1)
	relays := []*relay{c.relay(1), c.relay(2), c.relay(3)}
	for _, r := range relays {
		c.does("", "check", "--config", r.config)
		r.start(t)
	}
	for _, r := range relays { // what the first had is shared out only as nodes come and go
		c.sees(r, func(s api.Cluster) string {
			if !s.On || !s.Takes || len(s.Members) != 3 || len(s.Trouble) > 0 || s.Silent > 3 {
				return "it takes no part, or does not see three"
			}
			return ""
		})
	}
	first, env := relays[0], []string{"MTA_CONFIG=" + relays[0].config}

	// Refused: another data directory under a living node's number, and one that runs is not forgotten.
	c.fails("node 2: the number belongs to the relay at 127.0.0.1:", "serve", "--config", c.relay(2).config)
	c.fails("answered ", "cluster", "forget", "3")
	relays[2].submit(t, 2, func(int) (string, []string, string) {
		return "ann@client.example", []string{"bob@box.example"}, "Subject: x\r\n\r\nx\r\n"
	})
	c.fails("is in use by a relay: stop it first", "cluster", "rejoin", "--config", relays[2].config, "--dead", "-n")
	c.fails("has no queue: is it mounted?", "cluster", "rejoin", "--config", c.relay(3).config)
	foreign := relays[2].dir + "/foreign.conf" // with the certificate of another node
	writeFile(t, foreign, strings.ReplaceAll(readFile(t, relays[2].config), "node-3", "node-2"))
	relays[2].kill()
	c.does("node 3 at 127.0.0.1:", "cluster", "forget", "3", "--dead", "--dry-run")
	c.does("node 3 is forgotten", "cluster", "forget", "3", "--dead")
	c.fails("this node was forgotten", "serve", "--config", relays[2].config)
	c.sees(first, func(s api.Cluster) string {
		if len(s.Members) != 3 || !s.Members[2].Forgotten {
			return "node 3 is not forgotten"
		}
		return ""
	})
	namesake := c.relay(3)
	writeFile(t, namesake.config, strings.Replace(readFile(t, namesake.config), "relay-3", "relay-1", 1))
	c.fails(`has the nodeid "relay-1" of this relay`, "serve", "--config", namesake.config)
	inPlace := func(heir *relay, incarnation uint64) {
		heir.start(t)
		c.sees(first, func(s api.Cluster) string {
			if m := s.Members[2]; m.Forgotten || m.Incarnation != incarnation {
				return "nobody is in its place"
			}
			return ""
		})
	}
	c.fails("/cluster belongs to node 3, and the certificate ", "cluster", "rejoin", "--config", foreign)
	c.does("all of its mail would be held", "cluster", "rejoin", "--config", relays[2].config, "--dry-run")
	letters := relays[2].dir + "/data/maildrop/"
	if err := os.WriteFile(letters+"new/1", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.does("node 3 joins anew when its relay starts; its mail, for 2 recipients, is held", "cluster", "rejoin", "--config",
		relays[2].config)
	if _, err := os.Stat(letters + "held/1"); err != nil {
		t.Error(err)
	}
	inPlace(relays[2], 2)
	if out := relays[2].mta(t, "queue", "list", "--state", "held", "--json"); strings.Count(out, `"bob@box.example"`) != 2 {
		t.Errorf("what has joined anew holds %s", out)
	}
	relays[2].kill()
	c.does("node 3 is forgotten", "cluster", "forget", "3", "--dead")
	heir := c.relay(3)
	inPlace(heir, 3)

	// The same relay again, which hands over and goes on.
	if !heir.stop(patience) {
		t.Error("it does not stop")
	}
	heir.start(t)
	c.sees(heir, func(s api.Cluster) string {
		if !s.Takes || s.Members[2].Incarnation != 3 {
			return "it does not go on"
		}
		return ""
	})
	eventually(t, patience, func() error {
		out, err := mta(env, "cluster", "status")
		if err != nil || !strings.Contains(out, "database  answered ") ||
			!strings.Contains(out, "on loss   goes on with 1/3 of each shared limit") {
			return fmt.Errorf("mta cluster status prints %s, %w", out, err)
		}
		return nil
	})

	// Alarms, as the standby goes, and then the database.
	for _, step := range []struct {
		end   *database
		words string
	}{{c.standby, "no synchronous standby"}, {c.primary, "mail under them goes on, by 1/3 of each"}} {
		step.end.end()
		eventually(t, patience, func() error {
			if out, err := mta(env, "cluster", "status"); err == nil || !strings.Contains(out, step.words) {
				return fmt.Errorf("mta cluster status prints %s, %w", out, err)
			}
			return nil
		})
	}
	eventually(t, patience, func() error { // alarms are looked at each second
		if out, err := mta(env, "status"); err != nil || !strings.Contains(out, "cluster_database") {
			return fmt.Errorf("mta status prints %s, %w", out, err)
		}
		return nil
	})
}

// TestARelayWithoutACluster has no goroutine of one, and so nothing that dials.
func TestARelayWithoutACluster(t *testing.T) {
	parallel(t)
	r := newRelay(t, "127.0.0.1", "25", "")
	r.start(t)
	r.signal(syscall.SIGQUIT) // prints all goroutines
	<-r.done
	all := readFile(t, r.log)
	if !strings.Contains(all, "example.org/mta/queue.(*writer).run") {
		t.Fatalf("there is no goroutine of the queue in %s", tail(r.log))
	}
	if at := strings.Index(all, "example.org/mta/cluster/"); at >= 0 {
		t.Errorf("there is a goroutine of the cluster: %.300s", all[at:])
	}
}
