package top

import (
	"strings"
	"testing"
	"time"

	"github.com/gdamore/tcell/v3/vt"
)

// TestCluster: the rows of all nodes, the sums above them, and the node that is silent, for which nobody waits long. What
// an operator does to a row is done at its node.
func TestCluster(t *testing.T) {
	watchedWith(t, vt.MockOptSize{X: 100, Y: 30}, "sites", sample{nodes: true}, func(x *terminal) {
		requests := func(what string) int {
			x.relay.mu.Lock()
			defer x.relay.mu.Unlock()
			return x.relay.nodes[what]
		}
		x.wait(6 * time.Second)
		x.golden("cluster")
		before := requests("2 status")
		x.wait(20 * time.Second)
		if n := requests("2 status") - before; n < 6 {
			t.Errorf("node 2 was asked %d times in 20 s", n)
		}
		x.press("a")
		x.shows("node 3: no answer within 5s")
		x.press("q", down)
		x.shows(">    2  (mx1|mx2).big…")
		x.press("s", "\x15", "2", "h", enterKey, enterKey)
		x.shows("suspend site (mx1|mx2).big.example at all nodes for ")
		x.press("y")
		x.wait(time.Second)
		if here, there := requests("1 suspend"), requests("2 suspend"); here != 0 || there != 2 {
			t.Errorf("node 1 was asked %d times to suspend, and node 2 %d times", here, there)
		}
		x.press("e")
		x.shows("explanation of big.example")
		if n := requests("2 messages"); n == 0 {
			t.Error("another node was asked about the row")
		}
		x.press("q", "6")
		x.wait(2 * time.Second)
		x.press("c")
		x.shows("close the connection with ", " at node ")
		x.press("\x1b")
		text, err := Once(x.t.Context(), Config{Relay: x.relay.Client, Now: time.Now, Table: "tenants", Cluster: true}, 80, 24)
		if err == nil || err.Error() != "node 3: no answer within 5s" || !strings.Contains(text, "   2  acme") {
			t.Errorf("%v\n%s", err, text)
		}
	})
}
