package history

import "runtime/metrics"

// ProcessMemory is what the Go runtime has of the system, less what it has given back, in octets.
func ProcessMemory() int64 {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64() - s[1].Value.Uint64())
}
