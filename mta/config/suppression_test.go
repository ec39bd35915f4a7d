package config

import "testing"

func TestFailureStatus(t *testing.T) {
	for _, s := range []string{"5.1.1", "5.0.0", "5.7.999"} {
		if err := checkFailure(s); err != nil {
			t.Errorf("%q: %v", s, err)
		}
	}
	for _, s := range []string{"", "5", "5.1", "4.1.1", "5.1.1.1", "5.1.x", "5..1", "5.01.1", "5.1.1000", "5.1.-1", " 5.1.1", "550"} {
		if checkFailure(s) == nil {
			t.Errorf("%q passes for the status of a permanent failure", s)
		}
	}
}
