package intake

import (
	"net/netip"
	"testing"

	"example.org/mta/internal/network"
	"example.org/mta/internal/reply"
)

// However many networks take part, the records are bounded, and nothing is left out of the count.
func TestRefusalsOfManyNetworksAreBounded(t *testing.T) {
	told, sum := 0, int64(0)
	tl := tally{report: func(e Rejection) { told++; sum += max(e.Count, 1) }}
	const networks = 20_000
	for range 3 {
		for i := range networks {
			a := netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)})
			tl.add(network.Of(a), Rejection{Peer: netip.AddrPortFrom(a, 1), Reply: reply.Reply{Code: 550, Command: "RCPT"}}, toldOfStrangers)
		}
	}
	tl.close()
	if told > 2*maxTallies+2 {
		t.Errorf("%d records for %d refusals, want at most %d", told, 3*networks, 2*maxTallies+2)
	}
	if sum != 3*networks {
		t.Errorf("%d of %d refusals were counted", sum, 3*networks)
	}
}
