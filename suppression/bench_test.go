package suppression_test

import (
	"fmt"
	"testing"

	"example.org/mta/bounce"
	"example.org/mta/internal/envelope"
)

// BenchmarkDelivered is what the list costs each delivery: on a list with nothing against anybody, and with counters and
// entries that are set aside, of others.
func BenchmarkDelivered(b *testing.B) {
	for _, much := range []bool{false, true} {
		b.Run(fmt.Sprintf("much=%v", much), func(b *testing.B) {
			w := newBench(b)
			if much {
				for i := range 10_000 {
					w.refuse(address(i), bounce.QuotaIssues)
				}
				for i := range 1000 {
					w.refuse(address(i), bounce.InvalidRecipient)
				}
			}
			a := envelope.Address("ann@box.example")
			b.ReportAllocs()
			for b.Loop() {
				w.Delivered("acme", a, "google", "mx.google.example")
			}
		})
	}
}
