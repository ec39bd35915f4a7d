//go:build !race

package bubble

// RaceEnabled says that the race detector runs: each step takes longer, and more memory.
const RaceEnabled = false
