package kept

import (
	"strings"
	"testing"

	"example.org/mta/cluster/moving"
	"example.org/mta/operator/api"
)

// TestNoCluster: a relay without one drains into none.
func TestNoCluster(t *testing.T) {
	_, reset := Cluster{}.Reset(t.Context(), api.Reset{})
	_, drained := Cluster{}.DrainNode(t.Context(), api.Intent{})
	_, undrained := Cluster{}.UndrainNode(t.Context(), api.Intent{})
	_, moved := Cluster{}.Moving(t.Context())
	for _, err := range []error{reset, drained, undrained, moved} {
		if err == nil || !strings.Contains(err.Error(), "in no cluster") {
			t.Error(err)
		}
	}
}

// TestNoMoreIsInDeliveryThanIsLeft: the last pass may be older than the queue's count.
func TestNoMoreIsInDeliveryThanIsLeft(t *testing.T) {
	for left, busy := range map[int64]int{0: 0, 5: 5, 39: 39, 50: 39} {
		if got := progress(1, moving.Status{Busy: 39}, left); got.Busy != busy || got.Left != left {
			t.Errorf("of %d left %d are in delivery", got.Left, got.Busy)
		}
	}
}
