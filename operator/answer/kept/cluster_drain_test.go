package kept

import (
	"strings"
	"testing"

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
