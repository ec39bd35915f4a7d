package auth

import (
	"os"
	"testing"
)

// Hashing takes most of the time of these tests, and is the same with fewer iterations.
func TestMain(m *testing.M) {
	iterations = minIterations
	os.Exit(m.Run())
}
